"""What ssh itself refuses, with a real sshd on loopback."""

import subprocess

import pytest
from support.sshd import needs_sshd

from tfmon.errors import TfmonError

pytestmark = [pytest.mark.process, pytest.mark.slow, needs_sshd]


@pytest.mark.parametrize("wrong", ["unknown key", "changed key", "no login"])
def test_what_ssh_refuses_is_said_before_anything_runs(real_ssh, sshd, wrong):
    known = sshd.folder / "known_hosts"
    if wrong == "unknown key":
        known.write_text("")
        message, hint = "the host key of gpu2 is not known here", "ssh gpu2"
    elif wrong == "changed key":
        other = (sshd.folder / "user.pub").read_text()
        known.write_text(f"[127.0.0.1]:{sshd.port} {other}")
        message, hint = "the host key of gpu2 changed", f'-R "[127.0.0.1]:{sshd.port}"'
    else:
        (sshd.folder / "user").unlink()
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(sshd.folder / "user")]
        (sshd.folder / "user.pub").rename(sshd.folder / "before.pub")
        subprocess.run(words, check=True)
        (sshd.folder / "before.pub").replace(sshd.folder / "user.pub")
        message, hint = "gpu2: permission denied: ", "ssh-copy-id gpu2"
    with pytest.raises(TfmonError) as raised:
        real_ssh.connect()
    assert raised.value.message.startswith(message) and hint in raised.value.hint
