// Package openapitest holds tests to the HTTP contract: every request and every answer
// that passes through its Transport is compared with openapi.yaml.
package openapitest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	octopay "github.com/octopay/octopay"
)

// A contract is openapi.yaml, loaded and found valid, its examples included.
type contract struct {
	doc    *openapi3.T
	router routers.Router
}

var load = sync.OnceValues(func() (*contract, error) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(octopay.OpenAPI)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(loader.Context); err != nil {
		return nil, err
	}
	router, err := gorillamux.NewRouter(doc)
	return &contract{doc, router}, err
})

// Document returns openapi.yaml.
func Document(t testing.TB) *openapi3.T {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return c.doc
}

// Transport returns a RoundTripper that sends through base and reports to t every
// answer that isn't as the contract says, and every request that the contract forbids
// and the service didn't refuse. Requests that are meant to be wrong can go through it:
// they have to be refused. HEAD is held to what the contract says of GET.
//
// Bodies are read whole before they go on, so a test of a slow body needs another
// transport. t must live as long as the requests.
func Transport(t testing.TB, base http.RoundTripper) http.RoundTripper {
	t.Helper()
	Document(t)
	c, _ := load()
	return &transport{t, base, c}
}

type transport struct {
	t        testing.TB
	base     http.RoundTripper
	contract *contract
}

func (tr *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	tr.t.Helper()
	sent, err := readBody(&r.Body)
	if err != nil {
		return nil, err
	}
	res, err := tr.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	got, err := readBody(&res.Body)
	if err != nil {
		return nil, err
	}
	if err := tr.contract.check(r, sent, res, got); err != nil {
		tr.t.Errorf("%s %s -> %d breaks the contract: %v\n%.2000s", r.Method, r.URL.Path, res.StatusCode, err, got)
	}
	return res, nil
}

// readBody reads a body and puts back one that can be read again.
func readBody(body *io.ReadCloser) ([]byte, error) {
	if *body == nil || *body == http.NoBody {
		return nil, nil
	}
	b, err := io.ReadAll(*body)
	_ = (*body).Close()
	*body = io.NopCloser(bytes.NewReader(b))
	return b, err
}

// refusals are the statuses of a request that may be wrong in itself. 503 is one of
// them: under load it comes before anybody has looked at the request. So is 429, which comes
// before anybody has looked whether there is what the path names.
var refusals = map[int]bool{401: true, 403: true, 400: true, 404: true, 405: true, 408: true, 413: true, 414: true, 415: true, 421: true, 429: true, 503: true}

func (c *contract) check(r *http.Request, sent []byte, res *http.Response, got []byte) error {
	req := r.Clone(r.Context())
	req.Body = io.NopCloser(bytes.NewReader(sent))
	if r.Method == http.MethodHead {
		req.Method = http.MethodGet
		if len(got) > 0 {
			return fmt.Errorf("an answer to HEAD has a body")
		}
	}
	route, params, err := c.router.FindRoute(req)
	if err != nil || route.Operation == nil {
		return c.checkElse(r, res, got)
	}
	for name, value := range params {
		// The router leaves them escaped.
		if plain, err := url.PathUnescape(value); err == nil {
			params[name] = plain
		}
	}
	input := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route, Options: options(r)}
	if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil && !refusals[res.StatusCode] {
		return fmt.Errorf("the request is forbidden and was not refused: %w", err)
	}
	if res.StatusCode == http.StatusNotFound && strings.Contains(string(got), `"code":"not_found"`) {
		return c.checkElse(r, res, got) // a path that only looks like one of ours
	}
	return checkAnswer(r, input, res, got)
}

func options(r *http.Request) *openapi3filter.Options {
	return &openapi3filter.Options{
		IncludeResponseStatus: true,
		MultiError:            true,
		SkipSettingDefaults:   true,
		AuthenticationFunc:    openapi3filter.NoopAuthenticationFunc,
		ExcludeResponseBody:   r.Method == http.MethodHead,
	}
}

func checkAnswer(r *http.Request, input *openapi3filter.RequestValidationInput, res *http.Response, got []byte) error {
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: res.StatusCode, Header: res.Header, Options: input.Options,
	}
	return openapi3filter.ValidateResponse(r.Context(), answer.SetBodyBytes(got))
}

// elsewhere are the answers to requests that no operation describes, by their names in
// the contract.
var elsewhere = map[int]string{404: "NotFound", 405: "MethodNotAllowed", 414: "UriTooLong", 421: "Misdirected"}

// checkElse checks an answer to a request that no operation describes.
func (c *contract) checkElse(r *http.Request, res *http.Response, got []byte) error {
	as := c.doc.Components.Responses[elsewhere[res.StatusCode]]
	if as == nil {
		return fmt.Errorf("the contract has no such call, and it was not refused")
	}
	operation := &openapi3.Operation{Responses: openapi3.NewResponses(openapi3.WithStatus(res.StatusCode, as))}
	route := &routers.Route{Spec: c.doc, PathItem: &openapi3.PathItem{}, Method: r.Method, Operation: operation}
	return checkAnswer(r, &openapi3filter.RequestValidationInput{Request: r, Route: route, Options: options(r)}, res, got)
}
