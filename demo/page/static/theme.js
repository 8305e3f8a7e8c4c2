// Dark or light: what the system says, until the button says otherwise.
const KEY = "skymesh-theme";

export function setUpTheme(changed) {
  const system = matchMedia("(prefers-color-scheme: light)");
  const apply = () => {
    document.documentElement.dataset.theme = localStorage.getItem(KEY) ?? (system.matches ? "light" : "dark");
    changed();
  };
  system.addEventListener("change", apply);
  document.getElementById("theme").addEventListener("click", () => {
    localStorage.setItem(KEY, document.documentElement.dataset.theme === "light" ? "dark" : "light");
    apply();
  });
  apply();
}

/** The colours of the page, for canvases. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["bg", "panel", "line", "text", "soft", "good", "warn", "bad", "cold", "dead", "accent", "won", "spare", "map", "land", "coast"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** A canvas as sharp as the screen; true when its size has changed. */
export function fit(canvas) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width === width && canvas.height === height) return false;
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
  return true;
}
