// Controls that affect the whole mesh, scenarios, and the button that restores everything.
const $ = (id) => document.getElementById(id);
/** For so long after a slider was moved it shows what was asked for; then what is. Focus alone holds nothing. */
const EDITING = 1500;
/** How long a question waits for the second click. */
const SURE = 4000;
const RATES = [null, 200000, 100000, 50000, 20000, 10000, 5000];

export class Controls {
  constructor(send, state) {
    this.send = send;
    this.state = state;
    this.timer = 0;
    this.moved = -Infinity;
    for (const id of ["all-loss", "all-delay", "all-rate"]) {
      $(id).addEventListener("input", () => {
        this.moved = performance.now();
        this.words();
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.send({ do: "weather", weather: this.weather() }), 150);
      });
    }
    $("story").addEventListener("click", () => send({ do: "play", name: "story" }));
    $("play").addEventListener("click", () => send({ do: "play", name: $("scenario").value }));
    $("put-back").addEventListener("click", () => this.putBack());
    $("kill-half").addEventListener("click", () => {
      const roots = this.running("root");
      const routers = this.running("router");
      const names = [...some(roots, Math.min(Math.ceil(roots.length / 2), roots.length - 1)), ...some(routers, Math.ceil(routers.length / 2))];
      if (names.length) send({ do: "kill", names });
    });
    $("kill-root").addEventListener("click", () => send({ do: "kill", names: some(this.running("root"), 1) }));
    $("partition").addEventListener("click", () => {
      if (this.state.side.size) send({ do: "heal" });
      else send({ do: "partition", names: some(this.running("leaf"), 2) }); // the demo reports an error if there is none
    });
    $("storm").addEventListener("click", () => send({ do: "storm", routers: 2, clients: 6 }));
  }

  /** It sets the totals to zero: the second click within a few seconds does it. */
  putBack() {
    const button = $("put-back");
    clearTimeout(this.asked);
    if (button.dataset.sure === "yes") {
      this.calm();
      this.send({ do: "put back" });
      return;
    }
    button.dataset.sure = "yes";
    button.textContent = "Reset totals, too?";
    this.asked = setTimeout(() => this.calm(), SURE);
  }

  calm() {
    $("put-back").dataset.sure = "no";
    $("put-back").textContent = "Restore everything";
  }

  running(role) {
    return [...this.state.peers.values()].filter((peer) => peer.role === role && peer.state === "running").map((peer) => peer.name);
  }

  hello(message) {
    $("scenario").replaceChildren(...message.scenarios.filter(({ name }) => name !== "story").map(({ name, title }) => new Option(title, name)));
  }

  weather() {
    return { loss: Number($("all-loss").value) / 100, delay: Number($("all-delay").value) / 1000, rate: RATES[Number($("all-rate").value)] };
  }

  words() {
    const { loss, delay, rate } = this.weather();
    $("all-loss-out").textContent = `${Math.round(loss * 100)} %`;
    $("all-delay-out").textContent = `${Math.round(delay * 1000)} ms`;
    $("all-rate-out").textContent = rate ? `${rate / 1000} kB/s` : "unlimited";
  }

  update(message) {
    const busy = message.playing !== null;
    // A button that is disabled while in use passes the focus to the restore button.
    if (busy && [$("story"), $("play")].includes(document.activeElement)) $("put-back").focus();
    $("story").disabled = $("play").disabled = busy;
    $("story").textContent = message.playing === "story" ? "Story running…" : "Run the full story";
    $("partition").textContent = message.side.length ? "Reconnect them" : "Cut off two clients";
    if (performance.now() - this.moved < EDITING) return;
    const { loss, delay, rate } = message.everywhere;
    $("all-loss").value = String(Math.round(loss * 100));
    $("all-delay").value = String(Math.round(delay * 1000));
    $("all-rate").value = String(Math.max(0, RATES.indexOf(rate)));
    this.words();
  }
}

function some(names, count) {
  const left = [...names];
  const taken = [];
  while (taken.length < count && left.length) taken.push(left.splice(Math.floor(Math.random() * left.length), 1)[0]);
  return taken;
}
