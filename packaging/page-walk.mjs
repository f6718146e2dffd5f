// Looks at the pages in a Chromium that is driven by its debugging protocol. packaging/page-test calls it.
// usage: node --experimental-websocket page-walk.mjs DEBUGGING-PORT ROOT FOLDER FILE-TO-CHANGE
import { readFileSync, writeFileSync } from "node:fs";

const [port, root, folder, manifest] = process.argv.slice(2);
const WIDTHS = [400, 800, 1400];
const MOST_STOPS = 400;
const service = "/page/services/z-namespace-for-many/a-service-with-a-rather-long-name-7";
const why = "/page/why?from=10.1.0.5&to=10.96.0.10&port=80&protocol=tcp";
// Each page with its name, and texts that it shows.
const pages = [
  ["first", "/", [") contiv on worker-1", 'href="#quarantine"', "default/broken", "Renderers", "<svg", "page 1 of 3"]],
  ["search", "/?q=rather-long-name-7&sort=backends", ["long-name-77<", "11 services of 251"]],
  ["service", service, ["10.2.1.7:8080", "Its events"]],
  ["why", why, ["Where it goes", "default/web"]],
  ["flows", "/page/flows?namespace=default", ["Connections through services", "The newest first"]],
];

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
let failures = 0;
function check(isRight, problem) {
  if (isRight) return;
  failures += 1;
  console.log(`page-test: ${problem}`);
}

async function connect() {
  for (let tries = 0; tries < 100; tries++) {
    try {
      const answer = await fetch(`http://127.0.0.1:${port}/json/new?about:blank`, { method: "PUT" });
      const socket = new WebSocket((await answer.json()).webSocketDebuggerUrl);
      await new Promise((resolve) => (socket.onopen = resolve));
      return socket;
    } catch {
      await pause(200);
    }
  }
  throw new Error("Chromium does not answer");
}

const socket = await connect();
const waiting = new Map();
let number = 0;
socket.onmessage = ({ data }) => {
  const message = JSON.parse(data);
  if (message.id) return waiting.get(message.id)(message.result);
  if (message.method === "Runtime.exceptionThrown" || message.params?.entry?.level === "error")
    check(false, `the browser says: ${JSON.stringify(message.params).slice(0, 300)}`);
};
const send = (method, params = {}) =>
  new Promise((resolve) => {
    waiting.set(++number, resolve);
    socket.send(JSON.stringify({ id: number, method, params }));
  });
const evaluate = async (expression) => (await send("Runtime.evaluate", { expression, returnByValue: true })).result.value;
async function until(expression, problem, limit = 10000) {
  for (const end = Date.now() + limit; Date.now() < end; await pause(100)) if (await evaluate(expression)) return;
  check(false, problem);
}
async function open(path) {
  await send("Page.navigate", { url: root + path });
  await until(`document.readyState === "complete" && location.href === ${JSON.stringify(root + path)}`, `${path} is not loaded`);
}
const resize = (width) => send("Emulation.setDeviceMetricsOverride", { width, height: 1000, deviceScaleFactor: 1, mobile: width < 500 });
async function press(key, code, text) {
  for (const type of [text ? "keyDown" : "rawKeyDown", "keyUp"])
    await send("Input.dispatchKeyEvent", { type, key, windowsVirtualKeyCode: code, text: type === "keyUp" ? undefined : text });
}

// Takes pictures, and measures.
async function look(name, path) {
  for (const scheme of ["light", "dark"]) {
    await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
    for (const width of WIDTHS) {
      await resize(width);
      await open(path);
      const content = await evaluate("document.documentElement.scrollWidth");
      check(content <= width, `${path}: at a window width of ${width} pixels it is ${content} pixels wide`);
      const picture = await send("Page.captureScreenshot", { format: "png", captureBeyondViewport: true });
      writeFileSync(`${folder}/${name}-${width}-${scheme}.png`, Buffer.from(picture.data, "base64"));
    }
  }
}

// Goes through a page by the keyboard alone.
async function walk(path) {
  await resize(1400);
  await open(path);
  let before = 0;
  for (let stop = 0; stop < MOST_STOPS; stop++) {
    await press("Tab", 9);
    const focus = await evaluate(`(() => {
      const it = document.activeElement, box = it.getBoundingClientRect(), style = getComputedStyle(it);
      const name = (it.getAttribute("aria-label") || it.closest("label")?.textContent || it.textContent).trim();
      const isVisible = box.width > 0 && box.bottom > 0 && box.top < innerHeight && style.outlineStyle !== "none";
      return { name, isVisible, top: box.top + scrollY, isBody: it === document.body, isFirst: it.matches(".skip") };
    })()`);
    if (focus.isBody || (focus.isFirst && stop > 0)) break;
    check(focus.name && focus.isVisible, `${path}: the focus ${stop} has no name, or cannot be seen: ${focus.name}`);
    check(focus.top > before - 60, `${path}: the focus goes back to ${focus.name}`);
    before = focus.top;
  }
  await open(path);
  await press("Tab", 9);
  await press("Enter", 13, "\r");
  check((await evaluate("document.activeElement.id")) === "main", `${path}: the first link does not lead to the content`);
  await press("/", 191, "/");
  const field = await evaluate("document.activeElement.name + document.activeElement.value.includes('/')");
  check(["qfalse", "fromfalse", "namespacefalse"].includes(field), `${path}: the key / does not lead to the field: ${field}`);
}

await send("Page.enable");
await send("Runtime.enable");
await send("Log.enable");
for (const [name, path, parts] of pages) {
  for (const isWithout of [true, false]) {
    await send("Emulation.setScriptExecutionDisabled", { value: isWithout });
    await open(path);
    const html = await evaluate("document.documentElement.outerHTML");
    for (const part of parts) check(html.includes(part), `${path} does not show: ${part}${isWithout ? " (without script)" : ""}`);
  }
  await look(name, path);
  await walk(path);
}
await open("/?q=long-name-251");
await until("document.getElementById('live').textContent === 'live'", "the page does not say that it is live");
writeFileSync(manifest, readFileSync(manifest, "utf8").replaceAll("long-name-250", "long-name-251"));
await until("document.getElementById('list').textContent.includes('long-name-251')", "the page does not follow changes");
socket.close();
process.exit(failures === 0 ? 0 : 1);
