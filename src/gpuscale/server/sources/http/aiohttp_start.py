"""Imports aiohttp without loading the system's certificate authorities.

While it is imported it makes two TLS contexts that read all of them: 100 ms and 4 MiB in every server, most
of which never connect to a server that needs the system's CAs. Others read them then (`access`).
"""

import ssl


def import_aiohttp() -> None:
    """Import aiohttp before anyone else does; its default TLS context trusts no CA from then on."""
    ssl.SSLContext.set_default_verify_paths = lambda self: None  # type: ignore[method-assign]
    try:
        import aiohttp  # noqa: F401
    finally:
        del ssl.SSLContext.set_default_verify_paths  # the class below has this attribute too
