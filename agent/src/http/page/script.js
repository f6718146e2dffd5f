// Follows the agent: when something has changed the page is fetched again, and its parts that differ are replaced.
// Everything else works without script.
"use strict";

const live = document.getElementById("live");
let loadedAt = new Date();
let loading = null;

// Says how current the page is; only what is new is read out.
function say(text) {
  if (live.textContent !== text) live.textContent = text;
}

function isTyping(part) {
  return part.contains(document.activeElement) && document.activeElement.matches("input, select");
}

// Replaces each part by the one of the fetched page, except while someone types in it; all of them if there are others now.
function replaceParts(fetched) {
  const ids = (page) => [...page.querySelectorAll("[data-live]")].map((it) => it.id).join();
  const main = document.getElementById("main");
  const other = fetched.getElementById("main");
  if (other && ids(document) !== ids(fetched) && !isTyping(main)) {
    main.replaceWith(other);
  } else {
    for (const part of document.querySelectorAll("[data-live]")) replacePart(part, fetched.getElementById(part.id));
  }
  document.title = fetched.title;
}

function replacePart(part, other) {
  if (!other || isTyping(part)) return;
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
  loading = new AbortController();
  try {
    const response = await fetch(location.href, { signal: loading.signal });
    const text = await response.text();
    if (!response.headers.get("content-type")?.startsWith("text/html")) throw new Error(`answer ${response.status}`);
    replaceParts(new DOMParser().parseFromString(text, "text/html"));
    loadedAt = new Date();
    say("live");
  } catch (error) {
    if (error.name !== "AbortError") sayIsOld(error.message);
  }
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
  events.onopen = load;
  events.onmessage = load;
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
  const field = document.querySelector("input[type=search]") ?? document.querySelector("input[name=from]");
  if (!field) return;
  event.preventDefault();
  field.focus();
});
