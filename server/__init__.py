"""The BigSAP service: assignment problems as REST jobs.

``create_app`` (in ``app``) is the ASGI application, ``serve`` runs it. The package uses
of the library only what ``bigsap`` exports, and holds no algorithm.
"""
