// The totals at the top of the page.
const $ = (id) => document.getElementById(id);

export class Totals {
  update(t) {
    put("t-lost", t.lost + (t.wrong > t.lost ? t.wrong - t.lost : 0));
    $("lost-box").classList.toggle("broken", t.lost > 0 || t.wrong > 0);
    put("t-published", t.published);
    put("t-delivered", t.delivered);
    put("t-duplicates", t.duplicates);
    put("t-retransmitted", t.retransmitted);
    put("t-stall", `${Math.round(t.longest_stall_ms).toLocaleString("en")} ms`);
    const pause = Math.round(t.machine_pause_ms);
    put("t-stall-label", pause >= 50 ? `longest stall; machine paused ${(pause / 1000).toFixed(1)} s` : "longest stall");
    $("whole-box").classList.toggle("wounded", t.wounded_s !== null);
    const last = t.repairs_s.at(-1);
    put("t-whole", t.wounded_s !== null ? `${t.wounded_s.toFixed(1)} s` : last === undefined ? "yes" : `${last.toFixed(2)} s`);
    put("t-whole-label", t.wounded_s !== null ? "degraded for" : last === undefined ? "full resilience" : "to full resilience");
    put("t-cpu", `${t.cpu_cores.toFixed(2)} core`);
  }
}

function put(id, value) {
  const text = typeof value === "number" ? value.toLocaleString("en") : value;
  if ($(id).textContent !== text) $(id).textContent = text;
}
