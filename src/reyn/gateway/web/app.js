// The frame around all pages: sign in, navigation by address, keys.

import { html, render } from "./preact.js";
import { loadSession, signIn, signOut, startStream, user } from "./api.js";
import { ChatPage, Chats } from "./chat.js";
import { AgentPage, Inbox, Runs, SkillPage, Skills, Usage } from "./pages.js";
import { ComparePage } from "./compare.js";
import { RunPage } from "./run.js";
import { Connection, Failure, useEffect, useRef, useState } from "./ui.js";

const NAVIGATION = [["/", "Inbox", "i"], ["/runs", "Runs", "r"], ["/chat", "Chat", "c"], ["/skills", "Skills", "s"], ["/usage", "Usage", "u"]];

function page(path, query, go) {
  const [, first, second] = path.split("/").map(decodeURIComponent);
  if (first === "runs") return second ? html`<${RunPage} key=${second} run=${second} go=${go} />` : html`<${Runs} go=${go} />`;
  if (first === "chat") return second ? html`<${ChatPage} key=${second} run=${second} go=${go} />` : html`<${Chats} go=${go} agent=${query.get("agent")} />`;
  if (first === "skills") return second ? html`<${SkillPage} key=${second} name=${second} go=${go} />` : html`<${Skills} />`;
  if (first === "agents") return html`<${AgentPage} key=${second} name=${second} />`;
  if (first === "compare") return html`<${ComparePage} a=${query.get("a")} b=${query.get("b")} />`;
  if (first === "usage") return html`<${Usage} />`;
  return html`<${Inbox} />`;
}

function App() {
  const [place, setPlace] = useState(location.pathname + location.search);
  const [isSignedIn, setSignedIn] = useState(null);
  const main = useRef(null);
  const go = (target) => {
    history.pushState(null, "", target);
    setPlace(target);
    if (main.current) main.current.focus();
    scrollTo(0, 0);
  };
  useEffect(() => {
    addEventListener("popstate", () => setPlace(location.pathname + location.search));
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|TEXTAREA|SELECT/.test(event.target.tagName)) return;
      const found = NAVIGATION.find(([, , key]) => key === event.key);
      if (found) go(found[0]);
      if (event.key === "/") { event.preventDefault(); const search = document.querySelector("input[type=search]"); if (search) search.focus(); else go("/runs"); }
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest && event.target.closest("a[href^='/']");
      if (link && !event.defaultPrevented && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) { event.preventDefault(); go(link.getAttribute("href")); }
    });
    const code = location.pathname === "/login" ? location.hash.slice(1) : "";
    history.replaceState(null, "", location.pathname === "/login" ? "/" : place);
    const enter = code ? signIn(code).catch(() => loadSession()) : loadSession();
    enter.then(() => { setPlace(location.pathname + location.search); startStream(); setSignedIn(true); }, (error) => setSignedIn(error.status === 401 ? false : error));
  }, []);
  if (isSignedIn === null) return html`<p class="quiet" role="status">Loading …</p>`;
  if (isSignedIn instanceof Error) return html`<main><${Failure} error=${isSignedIn} /></main>`;
  if (!isSignedIn) return html`<${SignIn} />`;
  const [path, query] = place.split("?");
  const section = NAVIGATION.filter(([target]) => path === target || (target !== "/" && path.startsWith(`${target}/`)))[0];
  document.title = `${section ? section[1] : "Reyn"} · ${user().project}`;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to content</a>
    <header class="bar"><strong>Reyn</strong><nav aria-label="Pages">${NAVIGATION.map(([target, label, key]) => html`<a href=${target} title="Key: ${key}" aria-current=${section && section[0] === target ? "page" : undefined}>${label}</a>`)}</nav>
      <span class="grow"></span><span class="quiet who">${user().project} · ${user().user}</span><${Connection} />
      <button class="plain" onClick=${() => signOut().then(() => location.reload())}>Sign out</button></header>
    <main id="main" tabindex="-1" ref=${main}>${page(path, new URLSearchParams(query), go)}</main>`;
}

function SignIn() {
  const [secret, setSecret] = useState("");
  const [error, setError] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    signIn(secret.trim()).then(() => location.reload(), setError);
  };
  return html`<main class="narrow"><h1>Sign in</h1><p>Open the link that <code>reyn serve</code> printed, or enter a token of <code>reyn token new</code>.</p>
    <form onSubmit=${submit}><label for="secret">Token</label><input id="secret" type="password" autocomplete="current-password" value=${secret} onInput=${(event) => setSecret(event.target.value)} />
    <div class="row"><button class="main">Sign in</button></div><${Failure} error=${error} /></form></main>`;
}

render(html`<${App} />`, document.getElementById("app"));
