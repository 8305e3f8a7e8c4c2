"""The gateway as a process, with the clients that people use: curl's way of reading, Node, and a browser."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import subprocess
import sys
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from bench._browser import browser, reason_for_none
from peer.cli.errors import ExitCode
from tests.demo.command import wait_for
from tests.peer.cli.command import PATIENCE, REPOSITORY, root, running

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.xdist_group("gateway")]
SCRIPT = """
import { connect } from "%s/clients/js/skymesh.js";
const said = [];
let before = 0;
const stream = connect("http://%s", "asdi", {
  query: "/flight/flightleg/altitude > 0",
  onStarted: () => said.push("started"),
  onPacket: packet => {
    if (packet.an <= before) said.push("out of order");
    before = packet.an;
    if (said.length === 1) { said.push("packet"); stream.changeQuery("//a["); }
    if (said.at(-1) === "switched") { stream.close(); }
  },
  onError: () => { said.push("error"); stream.changeQuery("/flight"); },
  onSwitched: () => said.push("switched"),
  onClose: () => console.log(said.join(" ")),
});
"""
HASTY = """
import { connect } from "%s/clients/js/skymesh.js";
const stream = connect("http://%s", "asdi", {
  query: "//nothing",
  onSwitched: event => { console.log(event.type); stream.close(); },
});
stream.changeQuery("/flight"); // before it has connected
"""
REGRET = """
import { connect } from "%s/clients/js/skymesh.js";
const stream = connect("http://%s", "asdi", {
  onStarted: () => console.log("started"),
  onError: () => console.log("error"),
  onClose: () => console.log("closed"),
});
stream.close(); // before it has connected
"""


@contextmanager
def gateway(*arguments):
    with root("--feed", "demo:20") as (_, place):
        reach = ("--no-beacon", "--bootstrap", place, "--parents", "1", "--listen", "127.0.0.1:0")
        with running("gateway", "asdi", *reach, *arguments) as command:
            line = command.says("skymesh: clients connect to")
            yield command, line.split("://")[1].split("/")[0]


@pytest.fixture(scope="module")
def address():
    with gateway() as (_, address):
        yield address


def events(answer, count):
    found, event = [], {}
    while len(found) < count:
        line = answer.readline().decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif "data" in event:
            found.append(event)
            event = {}
    return found


def connection(address):
    return http.client.HTTPConnection(address, timeout=PATIENCE)


def test_server_sent_events_resume_without_a_loss(address):
    first = connection(address)
    first.request("GET", "/v1/asdi/events?query=" + quote("/flight/flightleg/altitude > 0"))
    found = events(first.getresponse(), 20)
    first.close()
    assert found[0]["event"] == "started"
    packets = [json.loads(event["data"]) for event in found if event["event"] == "packet"]
    assert all("<altitude" in packet["xml"] for packet in packets)
    again = connection(address)
    again.request("GET", "/v1/asdi/events", headers={"Last-Event-ID": str(packets[4]["an"])})
    resumed = [json.loads(event["data"]) for event in events(again.getresponse(), 30)]
    again.close()
    assert resumed[0]["an"] > packets[4]["an"]
    assert {packet["an"] for packet in packets[5:]} <= {packet["an"] for packet in resumed}


@pytest.mark.parametrize(
    ("program", "printed"),
    [(SCRIPT, ["started", "packet", "error", "switched"]), (HASTY, ["switched"]), (REGRET, ["closed"])],
    ids=["packets", "a query changed too early", "closed too early"],
)
def test_the_javascript_client_in_node(address, tmp_path, program, printed):
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node here")
    script = tmp_path / "client.mjs"
    script.write_text(program % (REPOSITORY, address))
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    flags = [] if int(version[1:].split(".")[0]) >= 22 else ["--experimental-websocket"]
    done = subprocess.run(
        [node, "--no-warnings", *flags, str(script)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split() == printed


@pytest.mark.browser
@pytest.mark.skipif(reason_for_none() is not None, reason=str(reason_for_none()))
def test_the_page_and_the_javascript_client_in_a_browser(address):
    with browser() as window:
        window.get(f"http://{address}/")
        count = "return Number(document.getElementById('count').textContent)"
        wait_for(lambda: window.execute_script(count) > 5, "that packets come")
        window.execute_script(
            "document.forms[0].query.value = arguments[0]; document.forms[0].requestSubmit()", "//nothing["
        )
        problem = "return document.getElementById('problem').textContent"
        wait_for(lambda: window.execute_script(problem), "that the page says what is wrong with the query")
        seen = window.execute_script(count)
        wait_for(lambda: window.execute_script(count) > seen, "that packets of the old query go on")
        assert window.execute_script(problem)  # found: the next packet wiped it away
        window.execute_script("document.forms[0].query.value = '/flight'; document.forms[0].requestSubmit()")
        wait_for(lambda: not window.execute_script(problem), "that a right query takes the problem away")
        faults = [line["message"] for line in window.get_log("browser") if line["level"] == "SEVERE"]
        assert [fault for fault in faults if "favicon" not in fault] == []


GARBAGE = (
    b"\x00" * 5_000,
    b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000,
    b"\x16\x03\x01\x02\x00",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxx",
)


def test_strangers_garbage_ends_nothing(address):
    import socket

    host, port = address.split(":")
    for data in GARBAGE:
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as stranger:
            stranger.sendall(data)
            stranger.shutdown(socket.SHUT_WR)
            try:
                while stranger.recv(65_536):
                    pass
            except ConnectionResetError:
                pass
    asking = connection(address)
    asking.request("GET", "/healthz")
    assert json.loads(asking.getresponse().read()) == {"ok": True}
    asking.close()


def test_tls_and_a_token(tmp_path):
    pem, token = tmp_path / "c.pem", tmp_path / "token"
    write_certificate(pem)
    token.write_text("0123456789abcdef\n")
    token.chmod(0o600)
    with gateway("--certificate", str(pem), "--token-file", str(token)) as (command, address):
        context = ssl.create_default_context(cafile=str(pem))
        place = address.replace("127.0.0.1", "localhost")
        asking = http.client.HTTPSConnection(place, timeout=PATIENCE, context=context)
        asking.request("GET", "/v1/asdi")
        answer = asking.getresponse()
        assert (answer.status, "token" in answer.read().decode()) == (401, True)
        asking.request("GET", "/v1/asdi", headers={"Authorization": "Bearer 0123456789abcdef"})
        assert asking.getresponse().status == 200
        asking.close()
        assert command.stop() == ExitCode.INTERRUPTED
        assert "0123456789abcdef" not in command.text


def write_certificate(path):
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))


@pytest.mark.parametrize(
    ("flags", "code", "sentence"),
    [
        (["--certificate", "none.pem"], ExitCode.KEY_FILE, "no such file"),
        (["--certificate-key", "none.pem"], ExitCode.USAGE, "needs --certificate"),
        (["--token-file", "{}/short"], ExitCode.KEY_FILE, "openssl rand -hex 32"),
        (["--token-file", "{}/open"], ExitCode.KEY_FILE, "chmod 600"),
        (["--token-file", "{}/none"], ExitCode.KEY_FILE, "No such file"),
        (["--allow-origin", "example.org"], ExitCode.USAGE, "expected scheme://host"),
    ],
)
def test_settings_that_make_no_sense(tmp_path, flags, code, sentence):
    for name, mode, text in (("short", 0o600, "x"), ("open", 0o644, "0123456789abcdef")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    done = subprocess.run(
        [sys.executable, "-m", "peer", "gateway", "asdi", *(flag.format(tmp_path) for flag in flags)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
