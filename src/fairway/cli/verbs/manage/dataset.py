"""`fairway data`: versioned datasets, which documents name as inputs."""

from __future__ import annotations

import os

from fairway.cli.address import DATA, path_of, split
from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, say, show_line
from fairway.cli.verbs.manage.model import say_large
from fairway.errors import RefusedError, UnavailableError
from fairway.sdk.transport.http import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.sdk.transport.http import SocketReply


def add(options: CommandOptions) -> int:
    """Keep a folder or a file as the next version of a dataset."""
    session = CommandSession(options)
    name, path = options.words
    by_reference = options.on("reference")
    path = path if by_reference and "://" in path else os.path.abspath(path)
    if options.on("plan"):
        how = "recorded by reference, not copied, as" if by_reference else "stored as"
        say(f"{path} would be {how} the next version of {name}; nothing was changed (--plan)")
        return 0
    session.announce()
    say_large(path)
    body: dict[str, Any] = {"name": name, "path": path, "reference": by_reference}
    if session.cluster is not None:
        from fairway.cli.cluster.upload import dataset_sent

        body = dataset_sent(session, body)
    version = session.send("POST", "/v1/datasets", body)
    reference = f"{version['name']}@{version['version']}"
    show_line(reference)
    outcome = "are recorded by reference" if by_reference else "are stored"
    say(f"{version['files']:,} files {outcome}; to use them: data: {{train: {reference}}}, or --data train={reference}")
    return 0


def list_datasets(options: CommandOptions) -> int:
    """Print every version of every dataset."""
    CommandSession(options).show("/v1/datasets")
    return 0


def get(options: CommandOptions) -> int:
    """Print each version named, with its files."""
    session = CommandSession(options)
    for reference in options.words:
        session.show(_path(reference))
    return 0


def pull(options: CommandOptions) -> int:
    """Copy a version's files into a folder."""
    session = CommandSession(options)
    address, folder = options.words[0], os.path.abspath(options.words[1])
    version = session.fetch(_path(address))
    reference = f"{version['name']}@{version['version']}"
    count = "1 file" if version["files"] == 1 else f"{version['files']:,} files"
    if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        message = f"{folder} already exists"
        raise RefusedError(message, fix="choose a folder that does not exist or is empty")
    if options.on("plan"):
        show_line(f"{reference} ({count}) would be copied to {folder}")
        say("nothing was changed (--plan)")
        return 0
    session.announce()
    _fetch(session, reference, version["digest"], folder)
    show_line(folder)
    say(f"{reference}: {count} copied")
    return 0


def _fetch(session: CommandSession, named: str, digest: str, folder: str) -> None:
    """Write the files of a version as a new folder. The folder appears only when it is complete."""
    import tempfile

    reply = session.call("GET", f"{_path(named)}/content")
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fairway-", dir=os.path.dirname(folder)) as temporary:
        content_folder = os.path.join(temporary, "content")
        os.mkdir(content_folder)
        actual, problem = _unpack(reply, content_folder)
        if actual != digest:
            message = f"{named} was not received completely{problem}"
            raise UnavailableError(message, fix="try again")
        os.rename(content_folder, folder)


def _unpack(reply: SocketReply, folder: str) -> tuple[str, str]:
    """Unpack the reply; return the digest of the content, or an empty digest and the error message."""
    from fairway.runtime.pod import archive

    try:
        return archive.digest_of(archive.unpack(_ReplyFile(reply), folder)), ""  # type: ignore[arg-type]
    except archive.BadArchiveError as error:
        return "", f": {error}"


class _ReplyFile:
    """A reply as a readable file."""

    def __init__(self, reply: SocketReply) -> None:
        self._reply = reply
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return `size` bytes; fewer at the end."""
        pieces = [self._rest]
        while sum(map(len, pieces)) < size and (piece := self._reply.chunk()) is not None:
            pieces.append(piece)
        data = b"".join(pieces)
        self._rest = data[size:]
        return data[:size]


def verify(options: CommandOptions) -> int:
    """Compare content with its digests and print the damaged files."""
    from fairway.cli import verification

    session = CommandSession(options)
    path = _path(options.words[0]) if options.words else f"/v1/datasets/{verification.ALL}"
    return verification.verify(session, f"{path}/verify")


def diff(options: CommandOptions) -> int:
    """Print which files of two versions differ."""
    before, after = options.words
    CommandSession(options).show(f"{_path(before)}/diff/{quote(split(after, (DATA,))[1])}")
    return 0


def _path(reference: str) -> str:
    return path_of(reference, kinds=(DATA,))


COMMANDS = {
    "add": CliCommand(
        "data add",
        "Store a folder or a file as the next version of a dataset. Content that is already stored is not stored twice.",
        add,
        words=(
            PositionalArgument("NAME", "the dataset"),
            PositionalArgument("PATH", "a folder or a file; with --reference also a URI"),
        ),
        flags=(CommandFlag("--reference", "do not copy the files: record where they are, and read them from there"), PLAN),
        examples=("fairway data add mnist ./mnist", "fairway run --data train=mnist@1 -- python train.py --data {{data.train}}"),
    ),
    "list": CliCommand("data list", "List datasets and their versions.", list_datasets, flags=(FORMAT,)),
    "get": CliCommand(
        "data get",
        "Show a version of a dataset with its files.",
        get,
        words=(PositionalArgument("NAME@VERSION", "a version (mnist@3), or the newest (mnist)", many=True),),
        flags=(FORMAT,),
        examples=("fairway data get mnist@3",),
    ),
    "pull": CliCommand(
        "data pull",
        "Copy a version's files into a new folder.",
        pull,
        words=(
            PositionalArgument("NAME@VERSION", "a version (scored@1), or the newest (scored)"),
            PositionalArgument("FOLDER", "the folder to create"),
        ),
        flags=(PLAN,),
        examples=("fairway data pull scored ./scored",),
    ),
    "verify": CliCommand(
        "data verify",
        "Read all copied content and compare it with its SHA-256; the exit code is 1 if anything is missing or damaged.",
        verify,
        words=(
            PositionalArgument(
                "NAME@VERSION", "a version (mnist@3), or all versions of a dataset (mnist); all if omitted", optional=True
            ),
        ),
        flags=(FORMAT,),
        examples=("fairway data verify", "fairway data verify mnist@3"),
    ),
    "diff": CliCommand(
        "data diff",
        "Show which files were added, removed and changed between two versions.",
        diff,
        words=(PositionalArgument("BEFORE", "a version"), PositionalArgument("AFTER", "another version")),
        flags=(FORMAT,),
        examples=("fairway data diff mnist@1 mnist",),
    ),
}
