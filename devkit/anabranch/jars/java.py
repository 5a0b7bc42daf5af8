"""Finds the Java runtime that Kafka and Spark need, before any dependency is installed.

Run as a module, it tells on standard error what is missing, with exit status 1, or prints nothing.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from anabranch.jars.errors import JavaUnavailableError

JAVA_VERSION_MIN = 17
_ANSWER_SECONDS_MAX = 60
_REMEDY = (
    f"Install a Java runtime, version {JAVA_VERSION_MIN} or newer "
    "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "Fedora: dnf install java-17-openjdk-headless; macOS: brew install openjdk@17), "
    "then put its java on the PATH or name its directory in JAVA_HOME."
)


def find_java() -> Path:
    """Returns the java command to run: that of JAVA_HOME if it is set, else the first on the PATH.

    Raises `JavaUnavailableError` if there is none, or if it is older than `JAVA_VERSION_MIN`.
    """
    path, origin = _locate()
    try:
        answer = subprocess.run(
            [path, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaUnavailableError(f"{path} ({origin}) does not run: {error}. {_REMEDY}") from error
    said = answer.stderr + answer.stdout
    # The stand-in that macOS puts on the PATH prints a text without a version.
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if answer.returncode != 0 or match is None:
        raise JavaUnavailableError(
            f"{path} ({origin}) is not a working Java runtime; "
            f"it says: {said.strip()[:300]!r}. {_REMEDY}"
        )
    if int(match[1]) < JAVA_VERSION_MIN:
        raise JavaUnavailableError(f"{path} ({origin}) is Java {match[1]}: too old. {_REMEDY}")
    return path


def _locate() -> tuple[Path, str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home, "bin", "java")
        if not os.access(path, os.X_OK):
            raise JavaUnavailableError(
                f"JAVA_HOME is {home!r}, but there is no command {path}. "
                f"Correct or unset JAVA_HOME. {_REMEDY}"
            )
        return path, "from JAVA_HOME"
    found = shutil.which("java")
    if found is None:
        raise JavaUnavailableError(f"Java is missing: there is no java on the PATH. {_REMEDY}")
    return Path(found), "from the PATH"


def main() -> int:
    """Checks, and tells what is missing."""
    try:
        find_java()
    except JavaUnavailableError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
