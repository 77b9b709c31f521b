"""Requests and answers: the application, its routes, what every request passes."""
