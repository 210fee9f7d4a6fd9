"""Addresses: what a URL from outside may lead to, and what it may look like."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.contracts.errors import ConfigurationError
from holdfast.webhooks.addresses import AddressBlocked, AddressPolicy, web_address

PUBLIC = AddressPolicy()


def teredo(server, client):
    return str(
        IPv6Address((0x20010000 << 96) | (int(IPv4Address(server)) << 64) | (~int(IPv4Address(client)) & 0xFFFFFFFF))
    )


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",  # Alibaba's metadata
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",  # Azure's own services
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",  # Oracle's metadata
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",  # "compatible", long abandoned
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:127.0.0.1",  # translated
        "64:ff9b::a9fe:a9fe",  # NAT64 of 169.254.169.254
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::808:808",  # NAT64 of a network's own
        "100::1",
        "2001::1",
        teredo("65.54.227.120", "10.0.0.1"),
        teredo("10.0.0.1", "8.8.8.8"),
        "2001:2::1",
        "2001:db8::1",
        "2002:7f00:1::",  # 6to4 of 127.0.0.1
        "2002:a9fe:a9fe::1",
        "2a00:1450::5efe:10.0.0.1",  # ISATAP
        "2a00:1450::200:5efe:169.254.169.254",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",  # Amazon's metadata
        "fe80::1",
        "fe80::1%1",
        "fec0::1",
        "ff02::1",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "",
        "localhost",
        "127.1",
        "0x7f.0.0.1",
    ],
)
def test_what_is_not_public_is_blocked(address):
    assert not PUBLIC.allows(address)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.255.255",
        "172.32.0.1",
        "192.0.1.1",
        "198.20.0.1",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
        teredo("65.54.227.120", "8.8.8.8"),
        "2606:4700:4700::1111",
        "2a00:1450:4001:80b::200e",
    ],
)
def test_what_is_public_may_be_reached(address):
    assert PUBLIC.allows(address)


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
@example(IPv6Address("64:ff9b::a9fe:a9fe"))
@example(IPv4Address("100.64.0.1"))
def test_nothing_is_allowed_that_python_knows_to_be_special(address):
    special = [address.is_loopback, address.is_link_local, address.is_multicast, address.is_unspecified]
    if address.version == 4:
        special.append(not address.is_global)

    assert not (PUBLIC.allows(address) and any(special))


@given(st.ip_addresses(v=4))
@example(IPv4Address("169.254.169.254"))
@example(IPv4Address("8.8.8.8"))
def test_an_address_that_hides_another_is_checked_as_the_hidden_one(hidden):
    number = int(hidden)
    forms = [
        IPv6Address((0xFFFF << 32) | number),
        IPv6Address(int(IPv6Address("64:ff9b::")) | number),
        IPv6Address((0x2002 << 112) | (number << 80) | 1),
        IPv6Address((0x20010000 << 96) | (number << 64) | (~number & 0xFFFFFFFF)),
    ]
    assert {PUBLIC.allows(form) for form in forms} == {PUBLIC.allows(hidden)}


def test_an_operator_may_allow_what_is_inside_and_nothing_beside_it():
    policy = AddressPolicy(allowed=["10.1.0.0/16", "127.0.0.1", "fd12::/16"])

    inside = ["10.1.255.1", "127.0.0.1", "fd12:3::4", "::ffff:10.1.0.1", "64:ff9b::10.1.0.1", "8.8.8.8"]
    beside = ["10.2.0.1", "127.0.0.2", "fd13::1", "::1", "::ffff:10.2.0.1", "169.254.169.254"]

    assert [address for address in inside if not policy.allows(address)] == []
    assert [address for address in beside if policy.allows(address)] == []


def test_allowing_the_outer_form_does_not_open_what_it_hides():
    assert not AddressPolicy(allowed=["64:ff9b::/96", "2002::/16", "2001::/32"]).allows("64:ff9b::a9fe:a9fe")


@pytest.mark.parametrize("text", ["", "intranet", "10.0.0.0/33", "10.1.2.3/8", "10.0.0"])
def test_what_is_no_network_is_a_mistake_of_the_configuration(text):
    with pytest.raises(ConfigurationError, match="neither an address nor a network"):
        AddressPolicy(allowed=[text])


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/file.pdf",
        "https://example.com:443/a?b=c#d",
        "https://example.com:8443/",
        "http://8.8.8.8/",
        "http://[2606:4700::1111]/",
        "https://exämple.de/ü",
        "HTTP://EXAMPLE.COM",
        "http://1.2.3.example/",
        "http://0xabc.example/",
    ],
)
def test_an_ordinary_url_may_be_asked_for(url):
    assert web_address(url).host


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("file:///etc/passwd", "not http"),
        ("ftp://example.com/", "not http"),
        ("gopher://example.com/", "not http"),
        ("data:application/pdf;base64,JVBERi0=", "not http"),
        ("//example.com/", "not http"),
        ("example.com/file.pdf", "not http"),
        ("", "not http"),
        ("http://", "no host"),
        ("http:///path", "no host"),
        ("https://user:hunter2@example.com/", "credentials"),
        ("https://user@example.com/", "credentials"),
        ("http://example.com@127.0.0.1/", "credentials"),
        ("http://example.com:22/", "Port 22"),
        ("http://example.com:25/", "Port 25"),
        ("http://example.com:0/", "Port 0"),
        ("http://example.com:99999/", "Port 99999"),
        ("http://2130706433/", "usual form"),
        ("http://0x7f.1/", "usual form"),
        ("http://0x7f000001/", "usual form"),
        ("http://0X7F.0.0.1/", "usual form"),
        ("http://0177.0.0.1/", "cannot be read"),
        ("http://127.1/", "usual form"),
        ("http://127.0.0.1./", "usual form"),
        ("http://0/", "usual form"),
        ("http://1.2.3.4.5/", "usual form"),
        ("http://0x/", "usual form"),
        ("http://①②⑦.⓪.⓪.①/", "cannot be read"),
        ("http://[::1/", "cannot be read"),
        ("http://exa mple.com/", "usual form"),
        ("http://%31%32%37.0.0.1/", "usual form"),
        ("http://a..b/", "usual form"),
        ("http://[fe80::1%25eth0]/", "usual form"),
        ("http://example.com/\r\nx-header: 1", "cannot be read"),
        ("http://example.com\x00.evil/", "cannot be read"),
    ],
)
def test_a_url_that_is_not_ordinary_is_blocked(url, problem):
    with pytest.raises(AddressBlocked, match=problem) as blocked:
        web_address(url)

    assert "hunter2" not in f"{blocked.value!r}"
