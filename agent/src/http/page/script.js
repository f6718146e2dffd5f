// Follows the agent: when something has changed the page is fetched again, and its parts that differ are replaced.
// Everything else works without script.
"use strict";

const live = document.getElementById("live");
let loadedAt = new Date();
const LOAD_PAUSE_FACTOR = 20;
let loading = null;
let isStale = false;
let notBefore = 0;
let later = null;

// Says how current the page is; only what is new is read out.
function say(text) {
  if (live.textContent !== text) live.textContent = text;
}

// Someone types in it, or has selected a part of it to copy.
function isInUse(part) {
  const selection = getSelection();
  const isSelected = !selection.isCollapsed && selection.containsNode(part, true);
  return isSelected || (part.contains(document.activeElement) && document.activeElement.matches("input, select"));
}

// Replaces each part by the one of the fetched page, except while it is in use; all of them if there are others now.
function replaceParts(fetched) {
  const ids = (page) => [...page.querySelectorAll("[data-live]")].map((it) => it.id).join();
  const main = document.getElementById("main");
  const other = fetched.getElementById("main");
  if (other && ids(document) !== ids(fetched) && !isInUse(main)) {
    main.replaceWith(other);
  } else {
    for (const part of document.querySelectorAll("[data-live]")) replacePart(part, fetched.getElementById(part.id));
  }
  document.title = fetched.title;
}

function replacePart(part, other) {
  if (!other || isInUse(part)) return;
  const opened = new Set([...part.querySelectorAll("details[open][id]")].map((it) => it.id));
  for (const details of other.querySelectorAll("details[id]")) details.open = opened.has(details.id);
  if (part.outerHTML === other.outerHTML) return;
  const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  part.replaceWith(other);
  if (focused) other.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

// Every page is shown, also that a service is gone. Other answers leave what is there, which is said.
async function load() {
  loading?.abort();
  const own = new AbortController();
  const start = performance.now();
  loading = own;
  isStale = false;
  try {
    const response = await fetch(location.href, { signal: own.signal });
    const text = await response.text();
    if (!response.headers.get("content-type")?.startsWith("text/html")) throw new Error(`answer ${response.status}`);
    replaceParts(new DOMParser().parseFromString(text, "text/html"));
    loadedAt = new Date();
    say("live");
  } catch (error) {
    if (error.name !== "AbortError") sayIsOld(error.message);
  }
  if (loading !== own) return;
  loading = null;
  notBefore = performance.now() + LOAD_PAUSE_FACTOR * (performance.now() - start);
  if (isStale) loadSoon();
}

// Changes are followed only as fast as an agent with very many services can bear, and one after the other.
function loadSoon() {
  isStale = true;
  if (loading) return;
  later ??= setTimeout(() => {
    later = null;
    load();
  }, Math.max(0, notBefore - performance.now()));
}

function sayIsOld(reason) {
  say(`${reason}; this is the state of ${loadedAt.toLocaleTimeString()}`);
}

// A page that nobody sees holds no connection: browsers have few for each host.
let events = null;
function follow() {
  // An answer to a question stays as it is: asking again could try backends again.
  if (events || document.hidden || !document.querySelector("[data-live]")) return;
  events = new EventSource(document.querySelector("[data-events]")?.dataset.events ?? "/page/events");
  events.onopen = loadSoon;
  events.onmessage = loadSoon;
  events.onerror = () => {
    sayIsOld("not connected");
    if (events.readyState !== EventSource.CLOSED) return;
    events = null;
    setTimeout(follow, 10000);
  };
}
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return follow();
  events?.close();
  events = null;
});
follow();

// The list of services follows what is typed. What else the address says stays.
let timer = 0;
function search() {
  const query = new URLSearchParams(location.search);
  query.delete("page");
  for (const [name, value] of new FormData(document.getElementById("filter"))) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  history.replaceState(null, "", `/?${query}#services`);
  load();
}
const isFilter = (event) => event.target.closest("#filter");
document.addEventListener("input", (event) => {
  if (!isFilter(event)) return;
  clearTimeout(timer);
  timer = setTimeout(search, 200);
});
document.addEventListener("submit", (event) => {
  if (!isFilter(event)) return;
  event.preventDefault();
  search();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || document.activeElement.matches("input, select")) return;
  const field = document.querySelector("input[type=search]") ?? document.querySelector("main input");
  if (!field) return;
  event.preventDefault();
  field.focus();
});
