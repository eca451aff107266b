"""`fairway model`: model versions, their aliases and their lineage."""

from __future__ import annotations

import os

from fairway.cli.address import MODEL, split
from fairway.cli.argument_parser import FORMAT, FORMATS, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, say, show_line, write
from fairway.errors import UsageError
from fairway.sdk.transport.http import quote

_LARGE = 1 << 30
"""Size in bytes above which a notice is printed before reading, because it takes long."""


def register(options: CommandOptions) -> int:
    """Keep a folder or a file as the next version of a model."""
    name, path = options.words
    return _register(options, {"name": _reference(name), "source": os.path.abspath(path)})


def import_model(options: CommandOptions) -> int:
    """Fetch a model from a path or a URI of any kind, and keep it as the next version."""
    name, uri = options.words
    source = uri if "://" in uri else os.path.abspath(uri)
    return _register(options, {"name": _reference(name), "source": source, "imported": True})


def say_large(path: str) -> None:
    """Print a notice if the path is large, because reading it takes a while."""
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    for top, _, names in os.walk(path):
        size += sum(os.lstat(os.path.join(top, name)).st_size for name in names)
    if size > _LARGE:
        say(f"reading {size / 1e9:.1f} GB of {path} ...")


def _register(options: CommandOptions, body: dict[str, object]) -> int:
    session = CommandSession(options)
    body |= {
        "metrics": {key: _number(key, value) for key, value in options.pairs("metric").items()},
        "tags": options.pairs("tag"),
        "format": options.text("model-format"),
        "allow_pickle": options.on("allow-pickle"),
        "from_run": options.text("from-run"),
    }
    look = {**session.look(), "output": options.text("output", "table")}
    if options.on("plan"):
        if session.cluster is not None:
            _show_plan(body, options.text("output", "table"))
        else:
            write(session.call("POST", "/v1/models", look, {**body, "plan": True}).read())
        say("nothing was changed (--plan)")
        return 0
    session.announce()
    say_large(str(body["source"]))
    if session.cluster is not None:
        from fairway.cli.cluster.upload import model_sent

        body = model_sent(session, body)
    if options.text("output"):
        write(session.change("POST", "/v1/models", body, look))
        return 0
    version = session.send("POST", "/v1/models", body)
    reference = f"{version['name']}@{version['version']}"
    show_line(reference)
    say(f"{version['format']}, {_files(version)} stored; next: fairway model promote {reference} champion")
    return 0


def _show_plan(body: dict[str, object], output: str) -> None:
    """Print what a registration on a cluster would do. The files are examined here because they are on this machine."""
    from fairway.sdk.submission.file_upload import examine
    from fairway.views.plan import PlanView, plan_text
    from fairway.views.text.output_format import to_json, to_yaml

    sentence = f"{body['source']} ({examine(body)}) would become the next version of {body['name']}"
    view = PlanView((sentence,), ())
    match output:
        case "json":
            write(to_json(view, pretty=True))
        case "yaml":
            write(to_yaml(view).encode())
        case _:
            write(plan_text(view).encode("utf-8", "surrogateescape"))


def list_models(options: CommandOptions) -> int:
    """Print the versions of a model, or of all models."""
    CommandSession(options).show("/v1/models", {"name": _reference(options.words[0])} if options.words else {})
    return 0


def get(options: CommandOptions) -> int:
    """Print all details of each named version."""
    session = CommandSession(options)
    for address in options.words:
        session.show(_path(address))
    return 0


def diff(options: CommandOptions) -> int:
    """Print the differences between two versions."""
    before, after = options.words
    CommandSession(options).show(f"{_path(before)}/diff/{quote(_reference(after))}")
    return 0


def promote(options: CommandOptions) -> int:
    """Move an alias to a version, or remove it."""
    session = CommandSession(options)
    address, alias = options.words
    body = {"alias": alias, "remove": options.on("remove"), "plan": options.on("plan")}
    if not options.on("plan"):
        session.announce()
    write(session.call("POST", f"{_path(address)}/promote", session.look(), body).read())
    if options.on("plan"):
        say("nothing was changed (--plan)")
    return 0


def pull(options: CommandOptions) -> int:
    """Copy a version's files into a folder."""
    session = CommandSession(options)
    address, folder = options.words[0], os.path.abspath(options.words[1])
    if options.on("plan"):
        version = session.fetch(_path(address))
        show_line(f"{version['name']}@{version['version']} ({_files(version)}) would be copied to {folder}")
        say("nothing was changed (--plan)")
        return 0
    session.announce()
    import json

    # Not retried when the reply is lost: the folder then exists, and a second request would be refused.
    version = json.loads(session.call("POST", f"{_path(address)}/pull", body={"folder": folder}).read())
    show_line(folder)
    say(f"{version['name']}@{version['version']}: {_files(version)} copied")
    return 0


def verify(options: CommandOptions) -> int:
    """Compare content with its digests and print the damaged files."""
    from fairway.cli import verification

    session = CommandSession(options)
    path = _path(options.words[0]) if options.words else f"/v1/models/{verification.ALL}"
    return verification.verify(session, f"{path}/verify")


def delete(options: CommandOptions) -> int:
    """Remove versions that are not in use."""
    session = CommandSession(options)
    keep = options.text("keep")
    query = {"keep": keep} if keep else {}
    if not keep:
        bare = [address for address in options.words if "@" not in address]
        if bare:
            message = f"{bare[0]} does not name a version"
            raise UsageError(message, fix=f"write {bare[0]}@3, or --keep 5 for all but the newest five")
    if options.on("plan"):
        for address in options.words:
            write(session.call("DELETE", _path(address), {**query, "plan": True, **session.look()}).read())
        say("nothing was changed (--plan)")
        return 0
    session.announce()
    deleted = [name for address in options.words for name in session.send("DELETE", _path(address), query=query)["deleted"]]
    if deleted:
        show_line("\n".join(deleted))
    say(f"{len(deleted)} {'version is' if len(deleted) == 1 else 'versions are'} deleted")
    return 0


def _files(made: dict[str, int]) -> str:
    return "1 file" if made["files"] == 1 else f"{made['files']:,} files"


def _reference(address: str) -> str:
    """Return `mnist@3`, also for `model/mnist@3`."""
    return split(address, (MODEL,))[1]


def _path(address: str) -> str:
    return f"/v1/models/{quote(_reference(address))}"


def _number(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if number != number or number in (float("inf"), float("-inf")):
        message = f"--metric {key}={value}: {value!r} is no number"
        raise UsageError(message, fix=f"write for example --metric {key}=0.98")
    return number


_OUTPUT = CommandFlag("--output -o", ", ".join(FORMATS), "FORMAT", choices=FORMATS)
"""For commands whose `--format` is the model's format."""
_FACTS = (
    CommandFlag("--metric", "a metric of the version; may be given again", "NAME=VALUE", many=True),
    CommandFlag("--tag", "a tag of the version; may be given again", "KEY=VALUE", many=True),
    CommandFlag("--from-run", "the run that produced it; its lineage and last metrics are recorded", "RUN"),
    CommandFlag("--model-format --format", "the format, if the files do not show it; python must be given explicitly", "FORMAT"),
    CommandFlag(
        "--allow-pickle", "accept files that can execute code when they are loaded: pickles, .pt2, TorchScript, SavedModel ..."
    ),
    PLAN,
    _OUTPUT,
)
_VERSION = PositionalArgument("NAME@VERSION", "a version (mnist@3), an alias (mnist@champion), or the newest (mnist)")

COMMANDS = {
    "register": CliCommand(
        "model register",
        "Store a folder or a file as the next version of a model. The same content and facts give the same version.",
        register,
        words=(PositionalArgument("NAME", "the model"), PositionalArgument("PATH", "a folder or a file")),
        flags=_FACTS,
        examples=(
            "fairway model register mnist ./model --metric accuracy=0.98",
            "fairway model register mnist m.onnx --from-run mnist-7",
        ),
    ),
    "import": CliCommand(
        "model import",
        "Fetch a model from a path or a URI and store it as the next version, together with its origin.",
        import_model,
        words=(
            PositionalArgument("NAME", "the model"),
            PositionalArgument("URI", "a path, or a URI such as s3://bucket/model or https://host/m.onnx"),
        ),
        flags=_FACTS,
        examples=("fairway model import mnist s3://bucket/mnist/7",),
    ),
    "list": CliCommand(
        "model list",
        "List models and their versions, newest first.",
        list_models,
        words=(PositionalArgument("NAME", "a model", optional=True),),
        flags=(FORMAT,),
        examples=("fairway model list", "fairway model list mnist -o wide"),
    ),
    "get": CliCommand(
        "model get",
        "Show a version: signature, metrics, lineage, tags, files.",
        get,
        words=(
            PositionalArgument(
                "NAME@VERSION", "a version (mnist@3), an alias (mnist@champion), or the newest (mnist)", many=True
            ),
        ),
        flags=(FORMAT,),
        examples=("fairway model get mnist@champion",),
    ),
    "diff": CliCommand(
        "model diff",
        "Show how two versions differ: files, signature, metrics, lineage.",
        diff,
        words=(PositionalArgument("BEFORE", "a version"), PositionalArgument("AFTER", "another version")),
        flags=(FORMAT,),
        examples=("fairway model diff mnist@champion mnist",),
    ),
    "promote": CliCommand(
        "model promote",
        "Point an alias to this version; prints the version that it pointed to before.",
        promote,
        words=(_VERSION, PositionalArgument("ALIAS", "a name such as champion")),
        flags=(CommandFlag("--remove", "remove the alias instead"), PLAN, FORMAT),
        examples=("fairway model promote mnist@3 champion", "fairway model promote mnist champion --remove"),
    ),
    "pull": CliCommand(
        "model pull",
        "Copy a version's files into a new folder.",
        pull,
        words=(_VERSION, PositionalArgument("FOLDER", "a folder that does not exist yet or is empty")),
        flags=(PLAN,),
        examples=("fairway model pull mnist@champion ./champion",),
    ),
    "verify": CliCommand(
        "model verify",
        "Read all content and compare it with its SHA-256; the exit code is 1 if anything is missing or damaged.",
        verify,
        words=(
            PositionalArgument(
                "NAME@VERSION", "a version (mnist@3), or all versions of a model (mnist); all models if omitted", optional=True
            ),
        ),
        flags=(FORMAT,),
        examples=("fairway model verify", "fairway model verify mnist@champion"),
    ),
    "delete": CliCommand(
        "model delete",
        "Delete versions, but never one that has an alias or is served. Their numbers are not reused.",
        delete,
        words=(PositionalArgument("NAME@VERSION", "a version (mnist@3); with --keep a model (mnist)", many=True),),
        flags=(CommandFlag("--keep", "delete all but this many of the newest versions", "NUMBER", number=True), PLAN),
        examples=("fairway model delete mnist@2", "fairway model delete mnist --keep 5 --plan"),
    ),
}
