"""Models as an HTTP service: what may be asked for, batches across clients, limits. Needs the extra `serve`."""
