"""HTTP of the routes: parameters of requests, responses, errors as responses."""
