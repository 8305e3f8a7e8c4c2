// A peer's card: its state, and the buttons that break it. Built once per peer, then updated in place.
const WEATHERS = [
  ["normal", {}], ["10 % loss", { loss: 0.1 }], ["30 % loss", { loss: 0.3 }], ["60 % loss", { loss: 0.6 }], ["cut", { loss: 1 }],
  ["200 ms delay", { delay: 0.2 }], ["1 s delay", { delay: 1 }], ["10 kB/s", { rate: 10000 }],
];

/** For so long after a choice it is shown, whatever the demo still says. */
const EDITING = 1500;

export class Card {
  constructor(box, title, badge, send, watch) {
    Object.assign(this, { box, title, badge, send, watch });
    this.shown = null;
    box.tabIndex = -1;
  }

  show(peer, state) {
    if (!peer) {
      if (this.shown !== null) {
        this.shown = null;
        this.title.textContent = "A peer";
        this.badge.textContent = "";
        this.box.parentElement.dataset.open = "no";
        const hint = document.createElement("p");
        hint.className = "hint";
        hint.textContent = "Select a peer in the mesh to see its details and to break it.";
        this.box.replaceChildren(hint);
      }
      return;
    }
    if (this.shown !== peer.name) this.build(peer);
    this.badge.textContent = `${peer.role === "leaf" ? "client" : peer.role}, ${peer.state}${peer.pid ? `, process ${peer.pid}` : ""}`;
    const rows = facts(peer);
    this.grid.replaceChildren(...rows.map(([name, value]) => entry(name, value)));
    if (this.query) this.query.textContent = peer.query;
    const { kill, freeze, restart, slow } = this.buttons;
    const held = Object.values(this.buttons).find((button) => button === document.activeElement);
    kill.disabled = !["running", "frozen"].includes(peer.state);
    freeze.disabled = !["running", "frozen"].includes(peer.state);
    freeze.textContent = peer.state === "frozen" ? "Thaw" : "Freeze";
    restart.disabled = peer.state !== "dead";
    for (const [how, words] of [["empty", "Lie: claim emptiness"], ["omit", "Lie: leave out packets"]]) {
      const button = this.buttons[how];
      if (!button) continue;
      button.disabled = peer.state !== "running";
      button.textContent = peer.lie === how ? "Be honest again" : words;
      button.dataset.lies = peer.lie === how ? "yes" : "";
    }
    if (slow) {
      slow.textContent = peer.pace ? "Consume at full speed" : "Consume 3 packets/s";
      slow.dataset.slow = peer.pace ? "yes" : "";
    }
    // When a button is disabled, keyboard users must not be sent back to the top of the page.
    // While a peer starts, all buttons are disabled: the card itself keeps the focus until one is enabled.
    if (held?.disabled || document.activeElement === this.box) {
      (Object.values(this.buttons).find((button) => !button.disabled) ?? this.box).focus({ preventScroll: true });
    }
    this.links(peer, state);
  }

  build(peer) {
    this.shown = peer.name;
    this.title.textContent = peer.name;
    this.box.parentElement.dataset.open = "yes";
    this.grid = document.createElement("dl");
    this.grid.className = "card-grid";
    const name = peer.name;
    const make = (id, text, order, className = "") => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", id, textContent: text, className });
      button.addEventListener("click", () => this.send(order(button)));
      return button;
    };
    this.buttons = {
      kill: make("card-kill", "Kill", () => ({ do: "kill", names: [name] }), "danger"),
      freeze: make("card-freeze", "Freeze", (button) => ({ do: button.textContent === "Thaw" ? "thaw" : "freeze", names: [name] })),
      restart: make("card-restart", "Restart", () => ({ do: "restart", names: [name] })),
    };
    if (peer.role === "router") {
      const lie = (how) => (button) => ({ do: "lie", name, how: button.dataset.lies ? null : how });
      this.buttons.empty = make("card-lie-empty", "Lie: claim emptiness", lie("empty"));
      this.buttons.omit = make("card-lie-omit", "Lie: leave out packets", lie("omit"));
    }
    if (peer.role === "leaf") {
      this.buttons.slow = make("card-slow", "Take 3 packets/s", (button) => ({ do: "pace", name, rate: button.dataset.slow ? null : 3 }));
    }
    const buttons = document.createElement("div");
    buttons.className = "card-buttons";
    buttons.append(...Object.values(this.buttons));
    this.query = null;
    const parts = [buttons, this.grid];
    if (peer.role === "leaf") {
      this.query = document.createElement("p");
      this.query.className = "card-query";
      parts.push(this.query);
    }
    this.table = document.createElement("table");
    this.table.hidden = true;
    const head = this.table.createTHead().insertRow();
    for (const text of ["link with", "", "rate", "first copies", "loss", "round trip", "conditions"]) {
      const cell = document.createElement("th");
      cell.textContent = text;
      head.append(cell);
    }
    this.body = this.table.createTBody();
    this.rows = new Map();
    this.chosen = new Map();
    this.box.replaceChildren(...parts, this.table);
  }

  links(peer, state) {
    const links = peer.up.map((link) => ({ ...link, is: "parent", other: link.name }));
    for (const other of state.peers.values()) {
      for (const link of other.up) if (link.name === peer.name) links.push({ ...link, is: "child", other: other.name });
    }
    const names = new Set(links.map((link) => link.other));
    for (const [name, row] of this.rows) if (!names.has(name)) { row.remove(); this.rows.delete(name); }
    for (const link of links) {
      const row = this.rows.get(link.other) ?? this.newRow(peer.name, link.other);
      const [other, is, rate, first, loss, trip, select] = row.cells;
      other.textContent = link.other;
      is.textContent = [link.is, link.sound ? "" : "silent", link.dispute ? "disputed" : "", link.protection ?? ""].filter(Boolean).join(", ");
      is.title = link.dispute ?? "";
      rate.textContent = `${Math.round(link.rate)}/s`;
      first.firstChild.firstChild.style.width = `${Math.round(link.won * 100)}%`;
      first.lastChild.textContent = ` ${Math.round(link.won * 100)} %`;
      loss.textContent = link.loss > 0 ? `${Math.round(link.loss * 100)} %` : "–";
      trip.textContent = link.rtt === null ? "–" : `${link.rtt.toFixed(link.rtt < 10 ? 1 : 0)} ms`;
      const weather = state.links.find(([a, b]) => (a === peer.name && b === link.other) || (b === peer.name && a === link.other))?.[2];
      const box = select.firstChild;
      if (performance.now() - (this.chosen.get(link.other) ?? -Infinity) > EDITING) box.value = String(indexOf(weather));
    }
    this.table.hidden = links.length === 0;
  }

  newRow(name, other) {
    const row = this.body.insertRow();
    for (let k = 0; k < 7; k++) row.insertCell();
    const share = document.createElement("span");
    share.className = "share";
    share.append(document.createElement("i"));
    row.cells[3].append(share, "");
    row.cells[3].append(document.createTextNode(""));
    const box = document.createElement("select");
    box.setAttribute("aria-label", `Conditions of the link with ${other}`);
    WEATHERS.forEach(([words], index) => box.append(new Option(words, String(index))));
    box.addEventListener("change", () => {
      this.chosen.set(other, performance.now());
      this.send({ do: "weather", weather: WEATHERS[Number(box.value)][1], between: [other, name] });
    });
    row.cells[6].append(box);
    this.rows.set(other, row);
    return row;
  }
}

function indexOf(weather) {
  if (!weather) return 0;
  return Math.max(0, WEATHERS.findIndex(([, known]) =>
    (known.loss ?? 0) === weather.loss && (known.delay ?? 0) === weather.delay && (known.rate ?? null) === weather.rate));
}

function protection(peer) {
  if (peer.protection === "plain") return "plain: losses are asked for";
  const what = peer.protection === "copy" ? "a copy of each packet" : `${peer.protection} packets`;
  return `${what} since ${Math.round(peer.protection_seconds)} s (${peer.protection_why})`;
}

function facts(peer) {
  if (peer.role === "dht") return [["contacts", peer.contacts ?? 0], ["records held", peer.records ?? 0], ["CPU", `${peer.cpu} s`]];
  const rows = [["level", peer.level ?? "–"], ["hops from a root", peer.hops ?? "–"]];
  if (peer.role !== "root") rows.push(["parents", `${peer.sound} of ${peer.wants}`]);
  if (peer.role !== "leaf") rows.push(["children", `${peer.children} of ${peer.capacity}`], ["retransmitted", peer.retransmitted]);
  if (peer.role !== "root") rows.push(["duplicates", peer.duplicates], ["NACKs sent", peer.nacks], ["recovered", peer.recovered]);
  if (peer.role !== "root" && peer.protection) rows.push(["protection", protection(peer)]);
  if (peer.disputed) rows.push(["disputes", peer.disputed]);
  if (peer.omitted) rows.push(["came late", peer.omitted]);
  if (peer.lie) rows.push(["lies", peer.lie === "empty" ? "claims emptiness" : "leaves out packets"]);
  if (peer.role === "leaf") {
    rows.push(["delivered", peer.delivered], ["lost", peer.lost], ["gaps", peer.gaps], ["in transit", peer.missing], ["flights", peer.flights]);
  }
  rows.push(["CPU", `${peer.cpu} s`]);
  if (peer.restarts) rows.push(["restarts", peer.restarts]);
  return rows;
}

function entry(name, value) {
  const box = document.createElement("div");
  const term = document.createElement("dt");
  const number = document.createElement("dd");
  term.textContent = name;
  number.textContent = typeof value === "number" ? value.toLocaleString("en") : value;
  box.append(term, number);
  return box;
}
