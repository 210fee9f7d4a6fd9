"""The chain of the certificate that signs SNS messages, from the certificate to an authority that is trusted here.

SNS publishes its own certificate, often without the certificate of the authority that issued it. The missing
certificates are fetched from Amazon's own address, which the certificate names. What is fetched there need not be
trusted: the chain is verified up to a root that was here before.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Final

import httpx
from cryptography import x509
from cryptography.x509.oid import AuthorityInformationAccessOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

Fetch = Callable[[str], Awaitable[bytes]]

_ISSUER: Final = re.compile(
    r"http://(?:crt\.[a-z0-9-]{1,32}\.amazontrust\.com|cacerts\.digicert\.com)/[A-Za-z0-9._-]{1,100}\.(?:cer|crt)"
)
_MOST_FETCHED: Final = 3
_AUTHORITIES: Final = (b"Amazon Root CA ", b"DigiCert Global Root ")
"""Those who issue certificates to SNS; DigiCert in China. Other roots are not even read."""


@cache
def trusted_roots() -> tuple[x509.Certificate, ...]:
    """The roots of these authorities among those that every HTTPS connection of ours trusts."""
    known = httpx.create_ssl_context().get_ca_certs(binary_form=True)
    return tuple(x509.load_der_x509_certificate(each) for each in known if any(name in each for name in _AUTHORITIES))


async def is_trusted(
    chain: Sequence[x509.Certificate], name: str, roots: Sequence[x509.Certificate], now: datetime, fetch: Fetch
) -> bool:
    """Whether the first certificate of the chain is of the host ``name`` and leads to one of the roots.

    Missing certificates are fetched; ``fetch`` may raise.
    """
    if not roots:
        return False
    verifier = PolicyBuilder().store(Store(list(roots))).time(now).build_server_verifier(x509.DNSName(name))
    leaf, *others = chain
    for _ in range(_MOST_FETCHED + 1):
        try:
            verifier.verify(leaf, others)
        except VerificationError:
            issuer = _issuer_address([leaf, *others][-1])
            if issuer is None:
                return False
            try:
                others.append(x509.load_der_x509_certificate(await fetch(issuer)))
            except ValueError:
                return False
        else:
            return True
    return False


def _issuer_address(certificate: x509.Certificate) -> str | None:
    """Where the certificate of the issuer is, if that is at Amazon or at DigiCert."""
    try:
        access = certificate.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    except (x509.ExtensionNotFound, ValueError):
        return None
    for each in access:
        place = each.access_location
        if each.access_method == AuthorityInformationAccessOID.CA_ISSUERS and isinstance(
            place, x509.UniformResourceIdentifier
        ):
            return place.value if _ISSUER.fullmatch(place.value) else None
    return None
