"""The sandbox's certificates: one authority, elliptic keys (an RSA key costs a fifth of a second each)."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = timedelta(days=30)
"""Certificates are made anew at every start, so this bounds one run of a sandbox."""
_BACKDATED = timedelta(hours=2)
"""A process whose clock is an hour behind takes the certificates too."""
_ROOT = "plnt-sandbox"


class Authority:
    """Issues certificates into one folder: ``<name>.crt`` and ``<name>.key``."""

    def __init__(self, folder: Path) -> None:
        """Make the authority ``ca.crt`` in ``folder``."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._key = _make_key(folder / "ca.key")
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _ROOT)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = _describe(subject, subject, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.certificate.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    @property
    def certificate(self) -> Path:
        """The authority's own certificate."""
        return self.folder / "ca.crt"

    def issue(self, name: str, common_name: str, group: str | None = None) -> tuple[Path, Path]:
        """Issue a pair for clients and for servers on loopback; gives the paths of certificate and key.

        To the API server a client certificate's common name is the user and its organisation a group.
        """
        certificate, key_path = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        key = _make_key(key_path)
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if group:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        builder = _describe(x509.Name(attributes), self._certificate.subject, key.public_key())
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return certificate, key_path

    def issue_signing_pair(self, name: str) -> tuple[Path, Path]:
        """Make the pair that signs service account tokens; gives the paths of public and private key."""
        private, public = self.folder / f"{name}.key", self.folder / f"{name}.pub"
        pem = _make_key(private).public_key()
        public.write_bytes(
            pem.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        return public, private


def _describe(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + LIFE)
    )


def _make_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return key
