"""What every reply says to a browser that shows it although it is no page: OWASP's REST Security Cheat Sheet.

Strict-Transport-Security is for whoever ends TLS in front of the service. There is no CORS header: no page of another
origin may read a reply.
"""

SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
