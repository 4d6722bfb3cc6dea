"""`openrlhf-js eval arena show`: opens the page with every question, answer and verdict."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rich.console import Console

from openrlhf_js.cli.eval_arena_boards import scored, write_page
from openrlhf_js.cli.eval_arena_score_flags import add_pool, check_pool
from openrlhf_js.cli.eval_run import guarded
from openrlhf_js.cli.parser import Parser
from openrlhf_js.cli.saying import say

PROGRAM = "openrlhf-js eval arena show"
DESCRIPTION = """\
Open the page of an arena in the browser: leaderboards, and every question with both answers, both
verdicts and what the judge said, to be searched.

Name a page that score --html has written, or say what to make one of, with the flags of score.
"""
EXAMPLES = """\
examples:
  openrlhf-js eval arena show arena.html
  openrlhf-js eval arena show --data data --bench arena-hard-v2.0 --judge gpt-4.1
  openrlhf-js eval arena show arena.html --serve             # on a machine without a browser
"""
PORT = 8600


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 shown, 1 the page cannot be written or served, 2 what was given cannot
        be used, 130 stopped before there was a page. Wrong flags exit with 2.
    """
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("page", nargs="?", type=Path, metavar="PAGE", help="of score --html")
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="where the page is made (default: arena.html in the bench's folder)",
    )
    parser.add_argument(
        "--serve", action="store_true", help="over HTTP, to this machine only, until Ctrl-C"
    )
    parser.add_argument(
        "--port", type=int, default=PORT, help="of --serve; 0 for any (default: %(default)s)"
    )
    add_pool(parser)
    args = parser.parse_args(argv)
    if args.page and args.bench:
        parser.error("name a PAGE, or a --bench to make one of, not both")
    if args.page and args.html:
        parser.error(f"--html names a page that is made, and {args.page} is there: leave out one")
    if not args.page:
        check_pool(parser, args)
    if not 0 <= args.port < 65536:
        parser.error(f"--port is {args.port}; give one from 0 to 65535")
    return guarded(
        PROGRAM, lambda: _show(args, Console(stderr=True)), "the same call does it again"
    )


def _show(args: argparse.Namespace, errors: Console) -> int:
    path = args.page or args.html or args.data / args.bench / "arena.html"
    if not args.page:
        for note in write_page(scored(args, errors), path, errors):
            say(errors, f"note: {note}")
    with path.open("rb"):  # before a browser says in its own way that it is not there
        pass
    say(errors, f"page: {path}")
    if args.serve:
        _serve(path, args.port, errors)
    elif not webbrowser.open(path.resolve().as_uri()):
        say(errors, "no browser was found here: open the page by hand, or take --serve")
    return 0


def _serve(path: Path, port: int, errors: Console) -> None:
    """Gives this page, and nothing else, to this machine, until Ctrl-C."""
    with ThreadingHTTPServer(("127.0.0.1", port), handler(path)) as server:
        port = server.server_address[1]
        say(errors, f"http://127.0.0.1:{port}/ until Ctrl-C")
        say(errors, f"from another machine first: ssh -L {port}:127.0.0.1:{port} THIS_MACHINE")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say(errors, "no longer served")


def handler(path: Path) -> type[BaseHTTPRequestHandler]:
    """What answers requests with one file, as it is at that time."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.split("?")[0] != "/":
                self.send_error(404)
                return
            body = path.read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:
            """Says nothing: a terminal is no place for a request's text."""

    return Handler


if __name__ == "__main__":
    sys.exit(main())
