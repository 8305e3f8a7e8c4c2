// The mesh: peers are real buttons; links and their traffic are drawn beneath them.
import { colours, Sheet } from "./theme.js";

const REPAIR_SECONDS = 2.6;

export class MeshView {
  constructor(stage, canvas, layer, onSelect) {
    this.stage = stage;
    this.sheet = new Sheet(canvas);
    this.layer = layer;
    this.onSelect = onSelect;
    this.nodes = new Map();
    this.moments = [];
    this.selected = null;
    this.side = new Set();
    this.colours = colours();
  }

  restyle() { this.colours = colours(); this.place(); }

  select(name) {
    this.selected = name;
    for (const node of this.nodes.values()) node.button.setAttribute("aria-pressed", String(node.peer.name === name));
  }

  update(peers, side) {
    this.side = side;
    const names = new Set(peers.map((peer) => peer.name));
    for (const [name, node] of this.nodes) {
      if (!names.has(name)) { node.button.remove(); this.nodes.delete(name); }
    }
    for (const peer of peers) {
      let node = this.nodes.get(peer.name);
      if (!node) node = this.enter(peer);
      node.peer = peer;
      this.dress(node);
    }
    // Read sizes after all writes: alternating would force one layout per read.
    for (const node of this.nodes.values()) {
      node.w = node.button.offsetWidth || node.w;
      node.h = node.button.offsetHeight || node.h;
    }
    this.place();
  }

  enter(peer) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.peer = peer.name;
    button.append(document.createElement("b"), document.createElement("span"));
    button.addEventListener("click", () => this.onSelect(button.dataset.peer));
    button.addEventListener("animationend", () => button.classList.remove("flash", "struck"));
    const node = { peer, button, x: this.stage.clientWidth / 2, y: this.stage.clientHeight + 30, tx: 0, ty: 0, w: 60, h: 30 };
    this.layer.append(button);
    this.nodes.set(peer.name, node);
    return node;
  }

  dress(node) {
    const { peer, button } = node;
    const flash = ["flash", "struck"].filter((name) => button.classList.contains(name));
    const classes = ["peer", peer.role, ...flash];
    if (peer.state !== "running") classes.push(peer.state);
    else if (peer.sound < peer.wants) classes.push(peer.sound ? "short" : "none");
    if (this.side.has(peer.name)) classes.push("cut");
    const dressed = classes.join(" ");
    if (button.className !== dressed) button.className = dressed;
    button.setAttribute("aria-pressed", String(peer.name === this.selected));
    const [title, words] = button.children;
    title.textContent = peer.name;
    const text = describe(peer);
    if (words.textContent !== text) words.textContent = text;
    button.setAttribute("aria-label", `${peer.name}, ${peer.state}, ${peer.sound} of ${peer.wants} parents, ${peer.children} children`);
  }

  /** Rows: roots, routers by their distance from a root, clients. */
  place() {
    const width = this.stage.clientWidth;
    const height = this.stage.clientHeight;
    if (!width) return;
    const rows = new Map();
    const put = (key, node) => { if (!rows.has(key)) rows.set(key, []); rows.get(key).push(node); };
    let deepest = 0;
    for (const node of this.nodes.values()) {
      if (node.peer.role === "router") {
        const hops = node.peer.hops;
        // A dead peer keeps its place; a peer without a path to a root is drawn at the bottom.
        node.row = node.peer.state === "running" && hops !== null && hops < 50 ? Math.max(1, hops) : node.row ?? 1;
        deepest = Math.max(deepest, node.row);
      }
    }
    for (const node of this.nodes.values()) {
      const role = node.peer.role;
      put(role === "root" || role === "dht" ? 0 : role === "router" ? node.row : deepest + 1, node);
    }
    // Rows wider than the stage are folded.
    const lines = [];
    for (const key of [...rows.keys()].sort((a, b) => a - b)) {
      const row = rows.get(key).sort(order);
      const room = Math.max(1, Math.floor((width - 16) / (Math.max(...row.map((node) => node.w)) + 10)));
      for (let at = 0; at < row.length; at += Math.ceil(row.length / Math.ceil(row.length / room))) {
        lines.push(row.slice(at, at + Math.ceil(row.length / Math.ceil(row.length / room))));
      }
    }
    const top = 30;
    const step = lines.length > 1 ? (height - 62) / (lines.length - 1) : 0;
    lines.forEach((line, index) => line.forEach((node, position) => {
      node.tx = (width * (position + 0.5)) / line.length;
      node.ty = top + step * index;
    }));
  }

  event(event) {
    const now = performance.now() / 1000;
    const flash = (name, ...classes) => {
      const button = this.nodes.get(name)?.button;
      if (!button) return;
      button.classList.remove("flash", "struck");
      void button.offsetWidth;
      button.classList.add("flash", ...classes);
    };
    if (event.kind === "gained" && event.other) this.moments.push({ from: event.other, to: event.who, kind: "gained", at: now });
    if (event.kind === "lostparent" && event.other) this.moments.push({ from: event.other, to: event.who, kind: "lost", at: now });
    if (event.kind === "suspected" && event.other) this.moments.push({ from: event.other, to: event.who, kind: "suspected", at: now });
    if (event.kind === "disputed" && event.other) this.moments.push({ from: event.other, to: event.who, kind: "suspected", at: now });
    if (event.kind === "fault" && event.who) flash(event.who, "struck");
    if (event.kind === "restored" || (event.kind === "heal" && event.who)) flash(event.who);
    if (this.moments.length > 200) this.moments.splice(0, 100);
  }

  frame(now, seconds) {
    const { pen, width, height } = this.sheet;
    if (!width) return;
    const c = this.colours;
    if (this.sheet.fit()) this.place();
    pen.clearRect(0, 0, width, height);
    for (const node of this.nodes.values()) {
      const pull = 1 - Math.exp(-seconds * 6);
      node.x += (node.tx - node.x) * pull;
      node.y += (node.ty - node.y) * pull;
      const place = `translate(${(node.x - node.w / 2).toFixed(1)}px, ${(node.y - node.h / 2).toFixed(1)}px)`;
      if (place !== node.shown) { node.button.style.transform = place; node.shown = place; }
    }
    this.taken = [...this.nodes.values()].map((node) => [node.x - node.w / 2, node.y - node.h / 2, node.w, node.h]);
    for (const node of this.nodes.values()) {
      node.peer.up.forEach((link, index) => this.link(pen, c, this.nodes.get(link.name), node, link, now, index));
    }
    this.moments = this.moments.filter((moment) => now - moment.at < REPAIR_SECONDS);
    for (const moment of this.moments) this.moment(pen, c, moment, (now - moment.at) / REPAIR_SECONDS);
  }

  link(pen, c, from, to, link, now, index) {
    if (!from || to.peer.state === "dead") return;
    const path = curve(from, to);
    const isChosen = this.selected === to.peer.name || this.selected === from.peer.name;
    const isCold = from.peer.state !== "running" || !link.sound;
    pen.lineWidth = (isChosen ? 1.6 : 0.8) + Math.min(2.6, Math.sqrt(link.rate) / 5);
    pen.strokeStyle = isCold ? c.dead : mix(c.spare, c.won, link.won);
    pen.globalAlpha = this.selected && !isChosen ? 0.35 : 0.85;
    pen.setLineDash(isCold ? [2, 5] : []);
    stroke(pen, path);
    if (link.loss > 0.005) {
      pen.strokeStyle = c.bad;
      pen.setLineDash([5, 9]);
      pen.lineDashOffset = 0;
      stroke(pen, path);
    }
    pen.setLineDash([]);
    if (!isCold && link.rate > 0) {
      const count = Math.max(1, Math.min(5, Math.round(link.rate / 20)));
      for (let k = 0; k < count; k++) {
        const along = (now * 0.55 + k / count + path.shift) % 1;
        const isFirst = ((k * 0.618 + path.shift + Math.floor(now * 0.55 + k / count + path.shift) * 0.37) % 1) < link.won;
        const [x, y] = at(path, along);
        pen.fillStyle = isFirst ? c.won : c.spare;
        pen.beginPath();
        pen.arc(x, y, isFirst ? 2.7 : 1.8, 0, 7);
        pen.fill();
      }
    }
    pen.globalAlpha = 1;
    if (!isCold && (isChosen || link.loss > 0.005)) this.label(pen, c, path, link, isChosen, index);
  }

  label(pen, c, path, link, isChosen, index) {
    const words = isChosen ? `${Math.round(link.rate)}/s, first ${Math.round(link.won * 100)} %` : "";
    const loss = link.loss > 0.005 ? `−${Math.round(link.loss * 100)} %` : "";
    const text = [words, loss].filter(Boolean).join("  ");
    pen.font = "600 10.5px system-ui, sans-serif";
    const width = pen.measureText(text).width + 8;
    const place = this.free(path, width, index);
    if (!place) return; // no room for it beside boxes and other labels
    const [x, y] = place;
    pen.fillStyle = c.panel;
    pen.globalAlpha = 0.86;
    pen.fillRect(x - width / 2, y - 8, width, 15);
    pen.globalAlpha = 1;
    pen.fillStyle = loss ? c.bad : c.text;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(text, x, y);
  }

  /** Where on a path a label covers neither a peer nor another label, if anywhere. */
  free(path, width, index) {
    for (let step = 0; step < 15; step++) {
      const [x, y] = at(path, 0.5 + ((step % 2 ? -1 : 1) * Math.ceil(step / 2) * 0.05 + (index % 3) * 0.02));
      const [left, top] = [x - width / 2 - 2, y - 10];
      const isFree = this.taken.every(([l, t, w, h]) => left > l + w || left + width + 4 < l || top > t + h || top + 19 < t);
      if (isFree && left > 0 && left + width < this.sheet.width) {
        this.taken.push([left, top, width + 4, 19]);
        return [x, y];
      }
    }
    return null;
  }

  /** A repair: the new link glows for a moment, the lost one fades. */
  moment(pen, c, moment, share) {
    const from = this.nodes.get(moment.from);
    const to = this.nodes.get(moment.to);
    if (!from || !to) return;
    const path = curve(from, to);
    pen.strokeStyle = { gained: c.good, lost: c.bad, suspected: c.warn }[moment.kind];
    pen.globalAlpha = 1 - share;
    pen.lineWidth = moment.kind === "gained" ? 7 - 4 * share : 3;
    pen.setLineDash(moment.kind === "gained" ? [] : [4, 6]);
    stroke(pen, path);
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }
}

function describe(peer) {
  if (peer.state === "dead") return "dead";
  if (peer.state === "frozen") return "frozen";
  if (peer.state === "starting") return "starting";
  if (peer.role === "dht") return `${peer.contacts ?? 0} contacts`;
  if (peer.role === "root") return `${peer.children} of ${peer.capacity}`;
  if (peer.role === "router") return `${peer.sound}/${peer.wants} ▲  ${peer.children}/${peer.capacity} ▼`;
  return `${peer.sound}/${peer.wants} ▲  ${peer.flights ?? 0} ✈`;
}

const rank = (peer) => (peer.role === "dht" && peer.name === "dht-1" ? 0 : peer.role === "dht" ? 2 : 1);
function order(a, b) {
  return rank(a.peer) - rank(b.peer) || a.peer.name.localeCompare(b.peer.name, "en", { numeric: true });
}

function curve(from, to) {
  const y1 = from.y + from.h / 2 - 2;
  const y2 = to.y - to.h / 2 + 2;
  const bend = Math.max(18, Math.abs(y2 - y1) * 0.45);
  const sign = y2 >= y1 ? 1 : -1;
  let shift = 0;
  for (const letter of from.peer.name + to.peer.name) shift = (shift * 31 + letter.charCodeAt(0)) % 997;
  return { x1: from.x, y1, x2: to.x, y2, c1: y1 + bend * sign, c2: y2 - bend * sign, shift: shift / 997 };
}

function stroke(pen, p) {
  pen.beginPath();
  pen.moveTo(p.x1, p.y1);
  pen.bezierCurveTo(p.x1, p.c1, p.x2, p.c2, p.x2, p.y2);
  pen.stroke();
}

function at(p, t) {
  const u = 1 - t;
  const a = u * u * u, b = 3 * u * u * t, c = 3 * u * t * t, d = t * t * t;
  return [a * p.x1 + b * p.x1 + c * p.x2 + d * p.x2, a * p.y1 + b * p.c1 + c * p.c2 + d * p.y2];
}

const parsed = new Map();
function rgb(colour) {
  if (!parsed.has(colour)) parsed.set(colour, [1, 3, 5].map((from) => parseInt(colour.slice(from, from + 2), 16)));
  return parsed.get(colour);
}
function mix(from, to, share) {
  const a = rgb(from), b = rgb(to);
  return `rgb(${a.map((value, index) => Math.round(value + (b[index] - value) * share)).join(",")})`;
}
