"""The HTTP API as a part of another program's web app: ``app.mount("/jobs-api", hold.asgi)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.contracts.errors import ConfigurationError

from .running import Running

if TYPE_CHECKING:  # a program without the API does without a web framework
    from holdfast.api.app import Gateway
    from holdfast.wiring import System


class MountedApi:
    """The API of ``holdfast up`` as an ASGI app. While its Holdfast does not run, each request is answered with 503."""

    def __init__(self) -> None:
        self._running: Running | None = None
        self._api: Gateway | None = None

    async def open(self, running: Running) -> None:
        """Answer requests from now on. Raises :class:`ConfigurationError` for secrets that are missing or unsafe."""
        with running.call() as system:
            self._api = _api_of(system)
            await self._api.prepare()
        self._running = running

    def leave(self) -> None:
        """End long answers, and refuse new requests."""
        if self._api is not None:
            self._api.leave()
        self._running = self._api = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
        """Serve one connection."""
        if scope["type"] == "lifespan":
            message = "hold.asgi has no lifespan of its own: mount it, and use lifespan=hold.lifespan in your own app."
            raise RuntimeError(message)
        if self._running is None or self._api is None or not self._running.open:
            await _refuse(scope, receive, send)
            return
        with self._running.call():
            await self._api(scope, receive, send)


def _api_of(system: System) -> Gateway:
    problems = system.settings.secret_problems()
    if problems and not system.settings.holdfast_demo:
        message = f"Holdfast does not serve its API with unsafe secrets. {' '.join(problems)}"
        raise ConfigurationError(message)
    api: Gateway = system.api()
    return api


async def _refuse(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1001})
        return
    from holdfast.api.asgi import send_refusal  # noqa: PLC0415 - see above
    from holdfast.api.errors import Code, Refusal  # noqa: PLC0415 - likewise
    from holdfast.wiring import RandomIds  # noqa: PLC0415 - likewise

    message = "Holdfast does not run in this process now; try again later."
    await send_refusal(send, Refusal(Code.SERVICE_UNAVAILABLE, message), RandomIds().new("req"))
