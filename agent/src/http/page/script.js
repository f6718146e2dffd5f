// Follows the agent: when something has changed the page is fetched again, and its parts that differ are replaced.
// Everything else works without script.
"use strict";

const live = document.getElementById("live");
let isStale = false;
let loading = null;

// Replaces each part by the one of the fetched page, except while someone types in it.
function replaceParts(fetched) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fetched.getElementById(part.id);
    if (!other || part.contains(document.activeElement) && document.activeElement.matches("input, select")) continue;
    const opened = new Set([...part.querySelectorAll("details[open][id]")].map((it) => it.id));
    for (const details of other.querySelectorAll("details[id]")) details.open = opened.has(details.id);
    if (part.outerHTML === other.outerHTML) continue;
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.replaceWith(other);
    if (focused) other.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
  document.title = fetched.title;
}

async function load(url) {
  loading?.abort();
  loading = new AbortController();
  const response = await fetch(url, { signal: loading.signal });
  const text = await response.text();
  if (response.ok) replaceParts(new DOMParser().parseFromString(text, "text/html"));
}

async function refresh() {
  if (document.hidden) { isStale = true; return; }
  isStale = false;
  try {
    await load(location.href);
    live.textContent = "live";
  } catch (error) {
    if (error.name !== "AbortError") live.textContent = "no answer";
  }
}

const events = new EventSource("/page/events");
let wasLost = false;
events.onopen = () => { live.textContent = "live"; if (wasLost) refresh(); wasLost = false; };
events.onmessage = refresh;
events.onerror = () => { wasLost = true; live.textContent = "not connected; this is the state of " + new Date().toLocaleTimeString(); };
document.addEventListener("visibilitychange", () => { if (!document.hidden && isStale) refresh(); });

// The list of services follows what is typed.
const filter = document.getElementById("filter");
let timer = 0;
function search() {
  const query = new URLSearchParams(new FormData(filter));
  for (const [name, value] of [...query]) if (!value) query.delete(name);
  history.replaceState(null, "", `/?${query}#services`);
  load(location.href).catch(() => {});
}
filter?.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, 200); });
filter?.addEventListener("submit", (event) => { event.preventDefault(); search(); });

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || document.activeElement.matches("input, select")) return;
  const field = document.querySelector("input[type=search]") ?? document.querySelector("input[name=from]");
  if (!field) return;
  event.preventDefault();
  field.focus();
});
