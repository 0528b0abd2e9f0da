// Listens for all tabs of a browser: it opens six connections to a server, and a stream takes one for as long as it lasts.
import { listen } from "./live.js";

const ports = new Set();
let listening = null;
let connected = false;

const tell = (said) => {
  if (said.connected !== undefined) connected = said.connected;
  if (said.refused) listening = null;
  for (const port of ports) port.postMessage(said);
};

// A tab that comes later is told how it stands; one with another token is newer than the server's last one.
const begin = (port, token) => {
  ports.add(port);
  if (listening?.token === token) { port.postMessage({ connected }); return; }
  if (listening) listening.end();
  listening = { token, end: listen(token, tell) };
};

onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => { if (data.end) ports.delete(port); else begin(port, data.token); };
};
