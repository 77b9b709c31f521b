"""Faults of a row provider, each a function of the request that it answers."""

from __future__ import annotations

from gate import HANG_S


def status(code, **headers):
    return lambda handler, ids: handler.send(b"no", "text/plain", code, **headers)


def cut_body(handler, ids):
    body = handler.provider.records(ids)
    handler.send_head(
        200, handler.labels() | {"Content_Type": "application/octet-stream", "Content_Length": str(len(body))}
    )
    handler.wfile.write(body[: len(body) // 2])
    handler.drop()


def cut_chunked(handler, ids):
    body = handler.provider.records(ids)
    handler.send_head(
        200, handler.labels() | {"Content_Type": "application/octet-stream", "Transfer_Encoding": "chunked"}
    )
    half = body[: len(body) // 2]
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(half), half))
    handler.drop()


def cut_without_length(handler, ids):
    body = handler.provider.records(ids)
    handler.send_head(
        200, handler.labels() | {"Content_Type": "application/octet-stream", "Connection": "close"}
    )
    handler.wfile.write(body[:-8])
    handler.drop()


def hang_up(handler, ids):
    handler.drop()


def reset(handler, ids):
    handler.drop(reset=True)


def no_http(handler, ids):
    handler.wfile.write(b"what?\r\n\r\n")
    handler.drop()


PASSING = {
    "500": status(500),
    "503": status(503, Retry_After="0"),
    "503 later": status(503, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
    "429": status(429),
    "cut body": cut_body,
    "cut chunked": cut_chunked,
    "cut without length": cut_without_length,
    "hang up": hang_up,
    "reset": reset,
    "no http": no_http,
}


def hang(handler, ids):
    handler.provider.released.wait(HANG_S)
    handler.drop()


def drip(handler, ids):
    """A byte at a time: every read succeeds in time, the whole never."""
    body = handler.provider.records(ids)
    handler.send_head(
        200, handler.labels() | {"Content_Type": "application/octet-stream", "Content_Length": str(len(body))}
    )
    for k in range(len(body)):
        handler.wfile.write(body[k : k + 1])
        if handler.provider.released.wait(0.05):
            break


def drip_head(handler, ids):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not handler.provider.released.wait(0.05):
        handler.wfile.write(b"a")


def rows_with(change=lambda body, size: body, **labels):
    """An otherwise good answer: body changed (``size``: bytes of a record), or labels."""

    def fault(handler, ids):
        body = handler.provider.records(ids)
        size = 8 + handler.provider.cost[0].nbytes
        handler.send_rows(change(body, size), **labels)

    return fault


changed = rows_with(BigSAP_Fingerprint="other")


def redirect(code):
    return lambda handler, ids: handler.send(
        b"", None, code, Location=f"http://user:secret@{handler.provider.host}/other"
    )


def endless(handler, ids):
    handler.send_head(
        200, handler.labels() | {"Content_Type": "application/octet-stream", "Transfer_Encoding": "chunked"}
    )
    while not handler.provider.released.is_set():
        handler.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")


LASTING = {
    "short": (rows_with(lambda body, size: body[:-8]), "bytes instead of"),
    "endless": (endless, "more than 416 bytes instead of 416"),
    "order": (rows_with(lambda body, size: body[size:] + body[:size]), "row . came where row"),
    "twice": (rows_with(lambda body, size: body[:size] * (len(body) // size)), "row 2 came where"),
    "dtype": (rows_with(BigSAP_Dtype="<i8"), "dtype '<i8' instead of '<f8'"),
    "byte order": (rows_with(BigSAP_Dtype=">f8"), "dtype '>f8' instead of '<f8'"),
    "no fingerprint": (rows_with(BigSAP_Fingerprint=None), "lacks the header BigSAP-Finger"),
    "changed": (changed, "the provider's data changed"),
    "html": (rows_with(Content_Type="text/html"), "Content-Type 'text/html' instead"),
    "gzip": (rows_with(Content_Encoding="gzip"), "Content-Encoding 'gzip'"),
    "301": (redirect(301), "redirects .301 Moved Permanently., which is refused"),
    "302": (redirect(302), "redirects"),
    "404": (status(404), "answered 404 Not Found"),
    "206": (status(206), "answered 206 Partial Content instead of 200"),
}
