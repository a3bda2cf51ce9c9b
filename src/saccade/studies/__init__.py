"""Published tables, claims, benchmarks and the demo. Nothing but the command line imports them."""
