package httpapi

import (
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/octopay/octopay/httpapi/problem"
)

// A handler does one call: it answers, or returns an error that is the answer.
type handler func(*call) error

// A route is one path and its methods, and who may use them. HEAD goes wherever GET does.
type route struct {
	pattern string // also its name in metrics and logs
	get     handler
	mayGet  roles
	post    handler
	mayPost roles
	allow   string
	series  seriesTable
}

// unmatched is the name of all paths that there are not.
const unmatched = "unmatched"

// routes are all calls: the one table of what there is, and of who may use it.
func routes() []*route {
	const readers = app | merchant | ops
	all := []*route{
		{pattern: "/v1/orders", get: findOrder, mayGet: readers, post: createOrder, mayPost: app | merchant},
		{pattern: "/v1/orders/batch", post: createBatch, mayPost: app | merchant},
		{pattern: "/v1/orders/{order_id}", get: getOrder, mayGet: readers},
		{pattern: "/v1/orders/{order_id}/pay", post: payOrder, mayPost: channel},
		{pattern: "/v1/orders/{order_id}/close", post: closeOrder, mayPost: app | merchant},
		{pattern: "/v1/orders/{order_id}/refunds", get: listRefunds, mayGet: readers, post: refundOrder, mayPost: app | merchant},
		{pattern: "/v1/orders/{order_id}/refunds/{out_refund_no}", get: getRefund, mayGet: readers},
		{pattern: "/v1/orders/{order_id}/refunds/{out_refund_no}/result", post: settleRefund, mayPost: channel},
		{pattern: "/v1/orders/{order_id}/unapplied-payments/{seq}/refund", post: refundUnapplied, mayPost: app | merchant},
		{pattern: "/v1/orders/{order_id}/unapplied-payments/{seq}/void", post: voidUnapplied, mayPost: ops},
		{pattern: "/v1/users/{uid}/orders", get: listUserOrders, mayGet: app | ops},
		{pattern: "/v1/merchants/{bid}/orders", get: listMerchantOrders, mayGet: readers},
		{pattern: "/v1/merchants/{bid}/unapplied-payments", get: listUnapplied, mayGet: readers},
		{pattern: "/v1/admin/unapplied-payments", get: listAllUnapplied, mayGet: ops},
		{pattern: "/v1/admin/refunds", get: listAllRefunds, mayGet: ops},
		{pattern: "/v1/admin/conflicts", get: listConflicts, mayGet: ops},
		{pattern: "/openapi.yaml", get: getOpenAPI, mayGet: public},
	}
	for _, r := range all {
		var methods []string
		if r.get != nil {
			methods = append(methods, http.MethodGet, http.MethodHead)
		}
		if r.post != nil {
			methods = append(methods, http.MethodPost)
		}
		r.allow = strings.Join(methods, ", ")
	}
	return all
}

// handler returns what answers method, or nil, and who may use it.
func (r *route) handler(method string) (handler, roles) {
	switch method {
	case http.MethodGet, http.MethodHead:
		return r.get, r.mayGet
	case http.MethodPost:
		return r.post, r.mayPost
	}
	return nil, 0
}

var matches = sync.Pool{New: func() any { return chi.NewRouteContext() }}

// paramsMax is how many parameters a path has at most.
const paramsMax = 2

// match finds the route of a path and the values of its parameters. Of the characters of
// these paths only those need escaping, or are escaped by careful clients, that a number
// given by others may hold, : | and *; a path with any other escape is none of them: an
// escaped slash can't be taken for a slash, here or by a proxy before us. Nor is one with
// a double or trailing slash, or a segment . or .., which a proxy might have made another
// path of.
func (a *API) match(r *http.Request) (*route, [paramsMax]string) {
	var params [paramsMax]string
	asked := r.URL.EscapedPath()
	if strings.ContainsRune(asked, '%') {
		asked = numberEscapes.Replace(asked)
	}
	if strings.ContainsRune(asked, '%') || path.Clean(asked) != asked {
		return nil, params
	}
	m := matches.Get().(*chi.Context)
	defer matches.Put(m)
	m.Reset()
	found := a.routes[a.paths.Find(m, http.MethodGet, asked)]
	if found == nil {
		return nil, params
	}
	copy(params[:], m.URLParams.Values)
	return found, params
}

var numberEscapes = strings.NewReplacer("%3A", ":", "%3a", ":", "%7C", "|", "%7c", "|", "%2A", "*", "%2a", "*")

// serve decides in the contract's order and calls the handler.
func (a *API) serve(c *call) error {
	if a.config.LocalHostsOnly && !localHost(c.r.Host) {
		return &problem.Problem{Code: problem.Misdirected}
	}
	if len(c.r.RequestURI) > uriMax {
		return &problem.Problem{Code: problem.URITooLong}
	}
	route, params := a.match(c.r)
	if route == nil {
		return &problem.Problem{Code: problem.NotFound}
	}
	c.route, c.params = route, params
	handle, may := route.handler(c.r.Method)
	if handle == nil {
		c.w.Header()["Allow"] = []string{route.allow}
		return &problem.Problem{Code: problem.MethodNotAllowed}
	}
	if may != public {
		if err := c.authenticate(); err != nil {
			return err
		}
	}
	if a.Draining() {
		return &problem.Problem{Code: problem.Draining}
	}
	if may != public && !may.has(c.key.Role) {
		return &problem.Problem{Code: problem.ScopeDenied}
	}
	if len(c.r.Header["Content-Encoding"]) > 0 {
		return &problem.Problem{Code: problem.UnsupportedMediaType}
	}
	return handle(c)
}
