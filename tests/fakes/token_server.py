"""A registry that wants tokens, and the server that gives them for a user and password."""

import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from tests.fakes.source_servers import running_registry, serving

USER, PASSWORD = "puller", "open-sesame"
SERVICE, ISSUER = "registry.test", "issuer.test"


@dataclass
class TokenServer:
    registry: str = ""
    realm: str = ""
    asked: list[str] = field(default_factory=list)
    seconds: int = 300
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    certificate: x509.Certificate | None = None

    def write_certificate(self, path: Path) -> None:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ISSUER)])
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.query["scope"])
        wanted = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {wanted}":
            return web.Response(status=401)
        return web.json_response({"token": self.make_token(request.query["scope"]), "expires_in": self.seconds})

    def make_token(self, scope: str) -> str:
        kind, name, actions = scope.split(":")
        now = int(time.time())
        assert self.certificate is not None
        der = self.certificate.public_bytes(serialization.Encoding.DER)
        head = {"alg": "RS256", "typ": "JWT", "x5c": [base64.b64encode(der).decode()]}
        access = [{"type": kind, "name": name, "actions": actions.split(",")}]
        claims = {"iss": ISSUER, "sub": USER, "aud": SERVICE, "exp": now + 300, "nbf": now - 5, "iat": now, "jti": "1"}
        signed = f"{_encode(head)}.{_encode({**claims, 'access': access})}"
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _encode(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@asynccontextmanager
async def running_private_registry(root: Path) -> AsyncIterator[TokenServer]:
    """Run a real registry that takes tokens of a server beside it."""
    server = TokenServer()
    bundle = root / "issuer.pem"
    server.write_certificate(bundle)
    app = web.Application()
    app.router.add_get("/token", server.handle)
    async with serving(app) as port:
        server.realm = f"http://127.0.0.1:{port}/token"
        auth = {
            "token": {
                "realm": server.realm,
                "service": SERVICE,
                "issuer": ISSUER,
                "rootcertbundle": str(bundle),
                "signingalgorithms": ["RS256"],
            }
        }
        async with running_registry(root / "private", auth) as registry:
            server.registry = registry
            yield server
