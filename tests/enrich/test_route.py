"""Paths in, routes out: ids of every form, what stays, bounds, and no secret."""

import random
import string
import uuid
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.enrich.rows import column, table

from tracehound.enrich import make_enrichers, route
from tracehound.enrich.route import MEMO, SEGMENTS, WORDS_OF_A_PREFIX, Routes
from tracehound.protocols import load_protocols

SHA1 = "9fceb02d0ae598e95dc970b74767f19372d61af8"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

CASES = {
    # numbers
    "/": "/",
    "/orders/17": "/orders/{id}",
    "/orders/17/items/3": "/orders/{id}/items/{id}",
    "/orders/-1": "/orders/{id}",
    "/orders/1234567890123456789": "/orders/{id}",
    "/geo/52.5200,13.4050": "/geo/{id}",
    "/hosts/10.0.0.1": "/hosts/{id}",
    "/phone/+491701234567": "/phone/{id}",
    # what is left out
    "/orders/17?page=2#top": "/orders/{id}",
    "/orders?id=17": "/orders",
    "/orders#17": "/orders",
    "/orders;jsessionid=AB12/17;a=b": "/orders/{id}",
    # UUIDs, hashes, tokens, codes
    "/u/123e4567-e89b-12d3-a456-426614174000": "/u/{id}",
    "/u/123E4567E89B12D3A456426614174000/x": "/u/{id}/x",
    "/u/%7B123e4567-e89b-12d3-a456-426614174000%7D": "/u/{id}",
    f"/commits/{SHA1}": "/commits/{id}",
    f"/commits/{SHA1[:7]}": "/commits/{id}",
    f"/nginx/manifests/sha256:{SHA1 * 2}": "/nginx/manifests/{id}",
    "/objects/507f1f77bcf86cd799439011": "/objects/{id}",
    "/objects/01ARZ3NDEKTSV4RRFFQ69G5FAV": "/objects/{id}",
    "/watch/dQw4w9WgXcQ": "/watch/{id}",
    "/jobs/k3j5h2g8d9s1": "/jobs/{id}",
    "/forms/AKfycbx-9pQ2Lk_7yT0mZr4": "/forms/{id}",
    f"/reset/{JWT}": "/reset/{id}",
    "/skus/SKU12345": "/skus/{id}",
    # parts of a segment
    "/customers/cus_9s6XKzkNRiz8i3": "/customers/cus_{id}",
    "/orders/ord-17": "/orders/ord-{id}",
    "/invoices/INV-2024-0017": "/invoices/INV-{id}",
    "/rooms/room:1234:members": "/rooms/room:{id}:members",
    "/blog/my-title-2024": "/blog/my-title-{id}",
    # dates
    "/events/2024-05-01": "/events/{date}",
    "/events/2024-05": "/events/{date}",
    "/events/2024-05-01T10:00:00Z/x": "/events/{date}/x",
    "/events/20240501": "/events/{id}",
    "/2024/05/01/news": "/{id}/{id}/{id}/news",
    # e-mail addresses
    "/users/ann@example.org": "/users/{email}",
    "/users/ann%40example.org/orders": "/users/{email}/orders",
    # names of files
    "/files/17.pdf": "/files/{id}.pdf",
    f"/files/{SHA1}.tar.gz": "/files/{id}.tar.gz",
    "/files/report.pdf": "/files/report.pdf",
    "/static/app.3f2a9c1b.js": "/static/app.{id}.js",
    "/static/main-8f3ac1d2.chunk.css": "/static/main-{id}.chunk.css",
    "/static/jquery-3.6.0.min.js": "/static/jquery-3.6.0.min.js",
    # words and versions stay
    "/api/v1/users/me": "/api/v1/users/me",
    "/api/1.0/users": "/api/1.0/users",
    "/v1.41/containers/json": "/v1.41/containers/json",
    "/pkg.Service/GetOrder": "/pkg.Service/GetOrder",
    "/MixedCaseName/getOrderItemsByCustomerId": "/MixedCaseName/getOrderItemsByCustomerId",
    "/@angular/core": "/@angular/core",
    "/i18n/en-US/oauth2/s3/http2": "/i18n/en-US/oauth2/s3/http2",
    "/.well-known/openid-configuration": "/.well-known/openid-configuration",
    "/a//b/": "/a//b/",
    "/deadbeef/facade": "/deadbeef/facade",
    # free text
    "/search/hello%20world": "/search/{name}",
    "/search/%E4%BD%A0": "/search/{name}",
    "/titles/" + "a-long-title-" * 8: "/titles/{name}",
    # other forms of a target
    "*": "*",
    "http://ann:secret@shop:8080/orders/17": "http://shop:8080/orders/{id}",
    "http://shop": "http://shop",
    "shop:443": None,
    # too long
    "/" + "/".join("abcdefghijklmnop"): "/a/b/c/d/e/f/g/h/i/j/k/l/{rest}",
    "/x/" + "9" * 5000 + "/y": "/x/{rest}",
}


@pytest.mark.parametrize("resource", CASES)
def test_route(resource: str) -> None:
    assert Routes(load_protocols()).route(resource) == CASES[resource]


def random_ids(seed: int) -> dict[str, str]:
    rolls = random.Random(seed)
    hexadecimal = f"{rolls.getrandbits(128):032x}"
    return {
        "number": str(rolls.randrange(10**12)),
        "uuid": str(uuid.UUID(int=rolls.getrandbits(128))),
        "md5": hexadecimal,
        "sha": hexadecimal * 2,
        "token": "a7B" + "".join(rolls.choices(string.ascii_letters + string.digits, k=29)),
    }


def test_random_ids_are_almost_always_ids() -> None:
    routes, found = Routes(load_protocols()), dict[str, int]()
    for seed in range(500):
        for kind, one in random_ids(seed).items():
            found[kind] = found.get(kind, 0) + (routes.route(f"/x/{one}/y") == "/x/{id}/y")
    assert found.pop("token") >= 475
    assert set(found.values()) == {500}


def request(resource: str | None, protocol: str | None = "http1", **given: Any) -> dict[str, Any]:
    return {"protocol": protocol, "resource": resource, **given}


def test_only_protocols_with_paths_have_routes() -> None:
    rows = [request("/a/1"), request("/a/1", "redis"), request("/a/1", None), request(None), request("/b/2")]
    found = Routes(load_protocols()).add({"requests": table("requests", *rows)})
    assert column(found, "requests", "route") == ["/a/{id}", None, None, None, "/b/{id}"]
    assert column(found, "requests", "resource") == ["/a/1", "/a/1", "/a/1", None, "/b/2"]


def test_tables_without_paths_stay_as_they_are() -> None:
    tables = {"requests": table("requests", request("key:1", "redis"))}
    assert Routes(load_protocols()).add(tables) is tables
    assert Routes(load_protocols()).add({}) == {}


# ---- bounds ----------------------------------------------------------------------------------------------------------


def word(number: int) -> str:
    """Return a word without digits, another for each number."""
    letters = string.ascii_lowercase
    return "w" + "".join(letters[number // 26**place % 26] for place in range(4))


def test_words_of_a_prefix_are_bounded() -> None:
    routes = Routes(load_protocols())
    found = [routes.route(f"/blog/{word(number)}/comments") for number in range(3 * WORDS_OF_A_PREFIX)]
    assert len(set(found)) == WORDS_OF_A_PREFIX + 1
    assert found[WORDS_OF_A_PREFIX - 1] == f"/blog/{word(WORDS_OF_A_PREFIX - 1)}/comments"
    assert set(found[WORDS_OF_A_PREFIX:]) == {"/blog/{name}/comments"}
    assert routes.route(f"/blog/{word(1)}/comments") == f"/blog/{word(1)}/comments"
    assert routes.route("/blog/17/comments") == "/blog/{id}/comments"
    assert routes.route("/shop/17") == "/shop/{id}"


def test_everything_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "WORDS", 300)
    monkeypatch.setattr(route, "MEMO", 100)
    routes, rolls = Routes(load_protocols()), random.Random(1)
    found = {
        routes.route("/" + "/".join(word(rolls.randrange(10_000)) for _ in range(rolls.randrange(1, 20))))
        for _ in range(20_000)
    }
    assert len(found) < 300 + SEGMENTS + 100
    assert routes._word_count == sum(map(len, routes._words.values())) == 300
    assert len(routes._segments) <= 100 and len(routes._bounded) <= 100 < MEMO


@given(st.text(max_size=300))
def test_any_text_gives_a_short_route(text: str) -> None:
    found = Routes(load_protocols()).route("/" + text)
    assert found is not None and found.startswith("/") and len(found) <= 1 + (SEGMENTS + 1) * 200
    assert "?" not in found.partition("{")[0] and "#" not in found.partition("{")[0]


@given(cuts=st.lists(st.integers(0, 600), max_size=5), seed=st.integers(0, 5))
def test_cuts_change_nothing(cuts: list[int], seed: int) -> None:
    rolls = random.Random(seed)
    rows = [request(f"/blog/{word(rolls.randrange(400))}/{rolls.randrange(50)}") for _ in range(600)]
    whole, routes = Routes(load_protocols()), Routes(load_protocols())
    expected = column(whole.add({"requests": table("requests", *rows)}), "requests", "route")
    found: list[Any] = []
    for start, stop in pairwise([0, *sorted(cuts), 600]):
        if start < stop:
            made = routes.add({"requests": table("requests", *rows[start:stop])})
            found += column(made, "requests", "route")
    assert found == expected


# ---- secrets ---------------------------------------------------------------------------------------------------------

SECRET = "Hunter2Geheim"
PLANTED = (
    f"/login?password={SECRET}",
    f"/login;token={SECRET}/x",
    f"/login#{SECRET}",
    f"/login/password={SECRET}/x",
    f"/users/{SECRET}@example.org/orders",
    f"/users/{SECRET}%40example.org/orders",
    f"http://ann:{SECRET}@shop/orders",
    f"http://{SECRET}@shop/orders",
    f"/go/http://ann:{SECRET}@shop/orders",
    f"/oauth/access_token:{SECRET}",
    f"/x/eyJ{SECRET}.{SECRET}.{SECRET}",
)


@pytest.mark.parametrize("resource", PLANTED)
def test_no_secret_in_a_route(resource: str) -> None:
    tables = {"requests": table("requests", request(resource, time_ns=1))}
    for enricher in make_enrichers(load_protocols()):
        tables = enricher.add(tables)
    (found,) = column(tables, "requests", "route")
    assert found and SECRET not in found and "Hunter2" not in found
