"""BigSAP service: assignment problems as REST jobs.

``create_app`` (in ``app``) builds the ASGI application, ``serve`` runs it. The package uses
only the library's public names, and contains no algorithm.
"""
