"""HTTP interface: the application, its routes and middleware."""
