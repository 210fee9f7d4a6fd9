"""The client needs httpx and the standard library alone. Each test has a Python of its own."""

from __future__ import annotations

import subprocess
import sys

# What `pip install httpx` installs, and what it asks for when it is there.
HTTPX = ("httpx", "httpcore", "h11", "anyio", "certifi", "idna", "sniffio", "typing_extensions")

REFUSE_OTHERS = f"""
import sys

ALLOWED = sys.stdlib_module_names | {{"holdfast", *{HTTPX!r}}}
refused = []

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED:
            refused.append(name)
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_with_httpx_alone():
    code = """
from holdfast import AsyncClient, Client, sign, verify_webhook
from holdfast.client import Email, Refused, Retries, Unreachable

body = b"{}"
assert verify_webhook(body, sign(body, "secret"), "secret")
with Client("http://127.0.0.1:9", "hf_x", retries=0) as client:
    for call in (
        lambda: client.submit("invoices", {"number": "1"}),
        lambda: client.email.send(Email(to="a@example.com", subject="s", html="h", recipient={"externalId": "1"})),
        lambda: list(client.jobs("invoices")),
    ):
        try:
            call()
        except Unreachable:
            continue
        raise SystemExit("somebody listens on port 9")
import asyncio

async def main():
    async with AsyncClient("http://127.0.0.1:9", retries=0) as client:
        try:
            await client.submit("invoices", {"number": "1"})
        except Unreachable:
            print("done")

asyncio.run(main())
"""
    assert run(REFUSE_OTHERS + code).endswith("done")


def test_the_hook_refuses_what_is_not_there():
    code = """
try:
    import holdfast.contracts.workload
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert run(REFUSE_OTHERS + code).startswith("pydantic")


def test_nothing_of_the_server_is_loaded():
    code = """
import sys
import holdfast.client
# Not rich: httpx loads it for its own command line, where it is there.
heavy = ("pydantic", "pydantic_core", "fastapi", "starlette", "uvicorn", "typer", "structlog", "sqlite3")
print([name for name in heavy if name in sys.modules])
print(sorted(name for name in sys.modules if name.startswith("holdfast.") and not name.startswith("holdfast.client")))
"""
    heavy, ours = run(code).splitlines()
    assert heavy == "[]"
    assert ours == "['holdfast.contracts', 'holdfast.contracts.times', 'holdfast.webhooks']"
