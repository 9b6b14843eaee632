"""MLflow's own tracking server, in front of which some answers get lost: `flaky_server.py FOLDER [PORT]` prints
its port.

Of the requests that write, every third is carried out and answered 500, as when a proxy gives up waiting; every fifth
is answered 500 and not carried out.
"""

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

Environ = dict[str, Any]
Respond = Callable[..., Any]


class Flaky:
    def __init__(self, app: Any) -> None:
        self._app = app
        self._writes = 0

    def __call__(self, environ: Environ, respond: Respond) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "POST" and not environ["PATH_INFO"].endswith("/search"):
            self._writes += 1
            if self._writes % 5 == 0:
                environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
                return self._lose(respond)
            if self._writes % 3 == 0:
                list(self._app(environ, lambda *_: None))
                return self._lose(respond)
        answer: Iterable[bytes] = self._app(environ, respond)
        return answer

    def _lose(self, respond: Respond) -> Iterable[bytes]:
        respond("500 Internal Server Error", [("Content-Length", "4")])
        return [b"lost"]


def main(folder: str, port: str = "0") -> None:
    store = os.environ["_MLFLOW_SERVER_FILE_STORE"] = f"sqlite:///{folder}/server.db"
    os.environ["_MLFLOW_SERVER_ARTIFACT_ROOT"] = f"file://{folder}/artifacts"
    from mlflow.server import app
    from mlflow.tracking import MlflowClient
    from werkzeug.serving import make_server

    MlflowClient(store).search_experiments()  # makes the tables
    server = make_server("127.0.0.1", int(port), Flaky(app))
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
