// Connects to the demo, keeps its state, and passes it to the views. No framework, no build step.
import { AirView } from "./air.js";
import { Flights } from "./flights.js";
import { MeshView } from "./mesh.js";
import { Card } from "./card.js";
import { QueryPanel } from "./query.js";
import { Controls } from "./controls.js";
import { Log } from "./log.js";
import { Totals } from "./totals.js";
import { Goal } from "./goal.js";
import { setUpTheme } from "./theme.js";

const $ = (id) => document.getElementById(id);
const state = { hello: null, peers: new Map(), now: 0, offset: null, selected: null, client: "client-1", links: [], side: new Set() };
let socket = null;
let toastTimer = 0;

/** Orders that were given while there was no connection wait for it, a few and not for long. */
const MOST_WAITING = 16;
const LONGEST_WAIT = 10000;
let waiting = [];

export function send(order) {
  if (socket && socket.readyState === WebSocket.OPEN) {
    socket.send(JSON.stringify(order));
    return;
  }
  waiting.push([performance.now(), order]);
  if (waiting.length > MOST_WAITING) waiting.shift();
  if (state.hello) toast("The demo is not responding. Your command is queued.");
}

function sendWaiting() {
  const young = waiting.filter(([at]) => performance.now() - at < LONGEST_WAIT);
  waiting = [];
  for (const [, order] of young) send(order);
}

function toast(text) {
  const box = $("toast");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { box.hidden = true; }, 6000);
}

/** Seconds of the demo's own clock. */
function meshNow() {
  return performance.now() / 1000 + (state.offset ?? 0);
}

const mesh = new MeshView($("mesh"), $("mesh-links"), $("mesh-peers"), select);
const air = new AirView($("air"), $("map"), $("map-label"), $("ramp"), meshNow);
const flights = new Flights(meshNow);
const token = location.hash.slice(1);
const card = new Card($("card"), $("card-title"), $("card-state"), send, watch);
const query = new QueryPanel(send);
const controls = new Controls(send, state);
const log = new Log($("timeline"), $("events"), $("caption"), meshNow);
const totals = new Totals();
const goal = new Goal();
const views = [mesh, air, log, goal];
setUpTheme(() => views.forEach((view) => view.restyle()));

function select(name) {
  state.selected = name;
  mesh.select(name);
  card.show(state.peers.get(name), state);
  if (state.peers.get(name)?.role === "leaf") watch(name);
}

function watch(name) {
  state.client = name;
  $("client").value = name;
  flights.watch(name, token);
  query.own(state.peers.get(name));
}

const handlers = {
  hello(message) {
    state.hello = message;
    state.offset = null;
    $("wants").textContent = ["no", "one", "two", "three", "four"][message.wants] ?? String(message.wants);
    $("terminal").hidden = !message.join;
    $("join-command").textContent = message.join ?? "";
    air.hello(message);
    flights.speed = message.speed;
    flights.learn(message.numbers);
    query.hello(message);
    controls.hello(message);
    log.hello(message);
    sendWaiting();
  },
  state(message) {
    const offset = message.now - performance.now() / 1000;
    // A message that traveled for less time gives a better estimate of the clock difference.
    state.offset = state.offset === null ? offset : Math.max(offset, state.offset - 0.002);
    state.now = message.now;
    flights.learn(message.numbers);
    state.peers = new Map(message.peers.map((peer) => [peer.name, peer]));
    state.links = message.links;
    state.side = new Set(message.side);
    if (state.selected && !state.peers.has(state.selected)) select(null);
    mesh.update(message.peers, state.side);
    totals.update(message.totals);
    goal.update(message.goal, message.now);
    controls.update(message);
    log.add(message.timeline);
    log.verdict(message.verdict);
    fillClients(message.peers);
    card.show(state.peers.get(state.selected), state);
    query.own(state.peers.get(state.client));
    document.body.dataset.ready = "yes";
  },
  event(message) {
    if (message.event.query !== undefined && message.event.who === state.client) flights.only(message.event.query);
    log.event(message.event);
    mesh.event(message.event);
  },
  tried(message) { query.tried(message); },
  refused(message) { toast(message.text); },
};

function fillClients(peers) {
  const names = peers.filter((peer) => peer.role === "leaf").map((peer) => peer.name);
  const box = $("client");
  if (box.dataset.names === names.join()) return;
  box.dataset.names = names.join();
  box.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.length && (!names.includes(state.client) || !flights.isWatching)) watch(names.includes(state.client) ? state.client : names[0]);
  box.value = state.client;
}

function connect() {
  if (!token) {
    $("caption").textContent = "Open the full address that the demo printed, including the part after the #: it is the key to the controls.";
    return;
  }
  socket = new WebSocket(`ws://${location.host}/ws?token=${encodeURIComponent(token)}`);
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    handlers[message.t]?.(message);
  };
  socket.onclose = () => {
    document.body.dataset.ready = "no";
    $("caption").textContent = "The demo has ended or is not responding. Reconnecting…";
    setTimeout(connect, 2000);
  };
}

$("card-close").addEventListener("click", () => closeCard(true));
$("copy-join").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText($("join-command").textContent);
    $("copy-join").textContent = "Copied";
    setTimeout(() => { $("copy-join").textContent = "Copy"; }, 2000);
  } catch {
    getSelection().selectAllChildren($("join-command")); // no access to the clipboard: Ctrl-C works then
  }
});
$("client").addEventListener("change", (event) => { watch(event.target.value); select(event.target.value); });
$("search").addEventListener("input", (event) => air.search(event.target.value.trim().toUpperCase()));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented) return;
  $("toast").hidden = true;
  if (event.target === $("search") && event.target.value) { // some browsers already do this, not all
    event.target.value = "";
    air.search("");
  } else if (state.selected) {
    closeCard($("card").contains(document.activeElement));
  }
});

function closeCard(givesFocusBack) {
  if (!state.selected) return;
  const chosen = document.querySelector(`[data-peer="${CSS.escape(state.selected)}"]`);
  if (givesFocusBack) chosen?.focus(); // back to the peer that opened the card
  select(null);
}
const main = document.querySelector("main");
main.dataset.view = "mesh";
for (const tab of document.querySelectorAll(".tabs button")) {
  tab.addEventListener("click", () => {
    main.dataset.view = tab.dataset.view;
    document.querySelectorAll(".tabs button").forEach((other) => other.setAttribute("aria-pressed", String(other === tab)));
    views.forEach((view) => view.restyle());
  });
}

let last = performance.now();
let rested = 0;
function frame(now) {
  const took = now - last - rested;
  const seconds = Math.min(0.5, (now - last) / 1000);
  last = now;
  mesh.frame(now / 1000, seconds);
  const changes = flights.changes();
  if (changes) air.update(changes);
  air.frame(meshNow(), seconds);
  log.frame();
  // After a slow frame, pause as long as it took: otherwise frames delay the messages and the page falls behind.
  rested = took > 40 ? Math.min(took, 400) : 0;
  if (rested) setTimeout(() => requestAnimationFrame(frame), rested);
  else requestAnimationFrame(frame);
}
requestAnimationFrame(frame);
connect();
