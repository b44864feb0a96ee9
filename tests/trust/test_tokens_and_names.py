"""Static tokens, names of certificates, and what a caller has shown as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from relay.core.errors import Unauthenticated
from relay.core.trust.principals import ANONYMOUS
from relay.trust import tokens
from relay.trust.files import BadFile
from relay.trust.identity import Identity
from relay.trust.names import of_certificate
from relay.trust.tokens import Tokens
from tests.trust.authority import LOOPBACK, Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


SPIFFE = x509.UniformResourceIdentifier("spiffe://shop.example/orders")


@pytest.mark.parametrize(
    ("names", "subject", "principal"),
    [
        ((x509.DNSName("orders.shop"), SPIFFE), "x", "spiffe://shop.example/orders"),
        ((LOOPBACK, x509.DNSName("Orders.shop"), x509.DNSName("other")), "x", "dns:orders.shop"),
        ((LOOPBACK,), "orders", "subject:CN=orders"),
        ((x509.DNSName("spiffe://shop.example/admin"),), "orders", "subject:CN=orders"),
        ((x509.UniformResourceIdentifier("https://orders.shop"),), "orders", "subject:CN=orders"),
        ((x509.UniformResourceIdentifier("spiffe://shop.example/a b"),), "orders", ""),
        ((SPIFFE, x509.UniformResourceIdentifier("spiffe://shop.example/admin")), "orders", ""),
        ((LOOPBACK,), "a\nb", ""),
    ],
)
def test_the_name_of_a_certificate(
    authority: Authority, names: tuple[x509.GeneralName, ...], subject: str, principal: str
) -> None:
    pair = authority.issue("caller", *names, subject=subject)
    content = pair.certificate.read_bytes()
    if not principal:
        with pytest.raises(Unauthenticated, match="client certificate"):
            of_certificate(content)
        return
    assert of_certificate(content).name == principal


def known(file: Path, *lines: str) -> Tokens:
    file.write_text("# who may call\n\n" + "".join(f"{line}  # since today\n" for line in lines))
    read = Tokens(file)
    read.load()
    return read


async def test_a_token_is_known_by_its_hash(tmp_path: Path) -> None:
    old, new, other = tokens.new(), tokens.new(), tokens.new()
    file = tmp_path / "tokens"
    listed = known(
        file, tokens.line("orders", old), tokens.line("orders", new), tokens.line("billing", other)
    )
    assert old not in file.read_text()
    identity = Identity(may_be_anonymous=False, tokens=listed)
    for token, name in ((old, "orders"), (new, "orders"), (other, "billing")):
        assert (await identity.of(None, [f"Bearer {token}"])).name == f"token:{name}"
    file.write_text(tokens.line("orders", new))
    listed.load()
    with pytest.raises(Unauthenticated) as caught:
        await identity.of(None, [f"Bearer {old}"])
    assert old not in str(caught.value)


@pytest.mark.parametrize("line", ["orders", "orders sha256:12", "a/b sha256:" + "0" * 64, "relay_secret"])
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadFile, match=r"^authentication.tokens_file: .* line 3: must be NAME") as caught:
        known(tmp_path / "tokens", line)
    assert line not in str(caught.value).partition("line 3")[2]


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ([], "is missing"),
        (["Bearer a", "Bearer b"], "must come once"),
        (["Basic eDp5"], "must be Bearer"),
        ([b"\xff"], "must be Bearer"),
        (["Bearer relay_unknown"], "not one that this relay takes"),
        (["Bearer a.b.c"], "not one that this relay takes"),
        (["Bearer \xe4"], "not one that this relay takes"),
    ],
)
async def test_what_proves_nothing_is_refused(tmp_path: Path, shown: list[str | bytes], problem: str) -> None:
    listed = known(tmp_path / "tokens")
    with pytest.raises(Unauthenticated, match=problem):
        await Identity(may_be_anonymous=False, tokens=listed).of(None, shown)
    local = Identity(may_be_anonymous=True, tokens=listed)
    if shown:
        with pytest.raises(Unauthenticated, match=problem):
            await local.of(None, shown)
    else:
        assert await local.of(None, shown) == ANONYMOUS


async def test_a_certificate_decides_alone(authority: Authority, tmp_path: Path) -> None:
    content = authority.issue("orders", SPIFFE).certificate.read_bytes()
    identity = Identity(may_be_anonymous=False, tokens=known(tmp_path / "tokens"))
    assert (await identity.of(content, ["Bearer relay_unknown"])).name == SPIFFE.value
