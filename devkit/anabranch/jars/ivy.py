"""Runs the Ivy that ships inside PySpark.

It knows the public Maven repository and its layout, so no address is written down here, and nothing
beyond Python packages and Java is needed.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from anabranch.jars.artifacts import Artifact
from anabranch.jars.errors import JarsUnavailableError
from anabranch.jars.java import find_java

# A site that reaches the public repository only through a mirror names its own Ivy settings here;
# the checksums hold for whatever that mirror serves.
SETTINGS_VARIABLE: Final = "ANABRANCH_IVY_SETTINGS"
_SETTINGS: Final = Path(__file__).with_name("ivysettings.xml")
_ATTEMPTS_MAX: Final = 3
_ATTEMPT_SECONDS_MAX: Final = 900.0


def pyspark_jars() -> Path:
    """Returns the folder of jars inside the installed PySpark, found without importing it."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise JarsUnavailableError(
            "PySpark, whose Ivy fetches the jars, is not installed. "
            "Install Anabranch with its extra: pip install 'anabranch[spark]'."
        )
    return Path(spec.submodule_search_locations[0], "jars")


def fetch(artifacts: Sequence[Artifact], folder: Path) -> None:
    """Puts every artifact into the folder, unverified, and reports progress on standard error.

    It does not fetch again what an earlier, interrupted call left in the folder's `ivy` directory.
    """
    descriptor = module_descriptor(
        (a.organisation, a.name, a.version, 'transitive="false"') for a in artifacts
    )
    settings = Path(os.environ.get(SETTINGS_VARIABLE, _SETTINGS))
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        status, said = run(descriptor, folder, settings, expected=len(artifacts))
        if status == 0:
            return
        _report(f"attempt {attempt} of {_ATTEMPTS_MAX} failed")
    raise JarsUnavailableError(
        "The jars could not be fetched from the Maven repository: "
        f"{_complaint(said)} Check the network connection (a proxy is given to Java by "
        "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; a mirror by Ivy "
        f"settings of your own, whose path {SETTINGS_VARIABLE} names) and run the command again; "
        "what is there already is kept."
    )


def module_descriptor(dependencies: Iterable[tuple[str, str, str, str]]) -> str:
    """Returns an Ivy file that asks for (organisation, name, version, further attributes)."""
    lines = [
        f"<dependency org={quoteattr(org)} name={quoteattr(name)} rev={quoteattr(rev)} {more}/>"
        for org, name, rev, more in dependencies
    ]
    return (
        '<ivy-module version="2.0"><info organisation="anabranch" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def run(
    descriptor: str,
    folder: Path,
    settings: Path,
    *,
    expected: int | None = None,
    pattern: str = "[artifact]-[revision].[ext]",
) -> tuple[int, list[str]]:
    """Runs Ivy once. Returns its exit status and its output.
    `expected` is for the progress only.
    """
    ivy_jar = next(pyspark_jars().glob("ivy-*.jar"), None)
    if ivy_jar is None:
        raise JarsUnavailableError(
            f"There is no Ivy in {pyspark_jars()}. Install pyspark==4.0.0 anew."
        )
    folder.mkdir(parents=True, exist_ok=True)
    # Our own cache: nothing in the user's ~/.ivy2 or ~/.m2, whole or not, is looked at.
    cache = folder / "ivy"
    module = folder / "ivy.xml"
    module.write_text(descriptor, encoding="utf-8")
    command: list[str | Path] = [find_java(), "-XX:TieredStopAtLevel=1"]
    command += ["-cp", ivy_jar, "org.apache.ivy.Main", "-settings", settings, "-cache", cache]
    command += ["-ivy", module, "-confs", "default", "-retrieve", f"{folder}/{pattern}"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    watchdog = threading.Timer(_ATTEMPT_SECONDS_MAX, process.kill)
    watchdog.daemon = True
    watchdog.start()
    said: list[str] = []
    try:
        with process:
            for line in process.stdout or ():
                said.append(line.rstrip())
                _report_progress(said[-1], sum("[SUCCESSFUL" in one for one in said), expected)
    finally:
        watchdog.cancel()
    return process.returncode, said


def _report_progress(line: str, done: int, expected: int | None) -> None:
    if "[SUCCESSFUL" in line:
        name = line.partition("]")[2].strip().partition("!")[0]
        _report(f"{done:3d} of {expected}  {name}" if expected else name)


def _report(line: str) -> None:
    sys.stderr.write(f"  {line}\n")
    sys.stderr.flush()


def _complaint(said: Sequence[str]) -> str:
    """Returns Ivy's words about the first failure, in one line, because its output ends with a long
    report.
    """
    telling = ("not found", "Exception", "error", "FAILED")
    lines = [line.strip(" \t:") for line in said if any(word in line for word in telling)]
    return "; ".join(lines[:3]) + "." if lines else "Ivy gave no reason."
