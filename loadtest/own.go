package main

import "context"

func (w where) own(ctx context.Context, c console) (*service, error) {
	return nil, usage("--url is required")
}
