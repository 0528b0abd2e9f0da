"""Hand out a folder of weights over HTTP, for servers on machines that do not share the folder."""

import secrets
from pathlib import Path

from aiohttp import web
from attrs import define

from ale_servers.address import ANY, Address
from ale_servers.records import Origin


@define(eq=False, slots=False)
class WeightOrigin:
    """Hands out a folder, in the event loop that starts it. Files are sent as they are, by
    ``sendfile``; nothing is encrypted.
    """

    _folder: Path
    """Of a `channel.WeightFolder`."""
    _address: Address
    """Where to listen."""

    def __attrs_post_init__(self) -> None:
        self._runner: web.AppRunner | None = None
        self._origin: Origin | None = None

    async def started(self) -> Origin:
        """Listen, if this was not called before; returns where.

        Raises:
            AleError: the address is taken, or does not belong to this machine.
        """
        if self._origin is None:
            key = secrets.token_urlsafe(16)
            app = web.Application()
            app.router.add_get(f"/{key}/{{version:v[0-9]+}}/{{name:[^/]+}}", self._file)
            listener = self._address.listen("weights can't be handed out")
            self._runner = web.AppRunner(app, access_log=None)
            await self._runner.setup()
            await web.SockSite(self._runner, listener).start()
            host = "" if self._address.host == ANY else self._address.host
            self._origin = Origin(host=host, port=listener.getsockname()[1], key=key)
        return self._origin

    async def _file(self, request: web.Request) -> web.FileResponse:
        file = self._folder / request.match_info["version"] / request.match_info["name"]
        if not file.is_file():
            raise web.HTTPNotFound
        return web.FileResponse(file)

    async def aclose(self) -> None:
        """End all transfers. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
