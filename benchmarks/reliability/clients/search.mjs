// POSTs with Node's own clients as they come, fetch and http in turns: URL KEY BODY COUNT.
import http from "node:http";

const [url, key, body, count] = process.argv.slice(2);
const headers = { "Content-Type": "application/json", "X-API-Key": key };

function byHttp() {
  return new Promise((resolve) => {
    const request = http.request(url, { method: "POST", headers }, async (reply) => {
      let text = "";
      for await (const part of reply) text += part;
      resolve([reply.statusCode, text]);
    });
    request.on("error", () => resolve([0, ""]));
    request.end(body);
  });
}

async function byFetch() {
  try {
    const reply = await fetch(url, { method: "POST", headers, body });
    return [reply.status, await reply.text()];
  } catch {
    return [0, ""];
  }
}

let answered = 0;
for (let asked = 0; asked < Number(count); asked++) {
  const [status, text] = await (asked % 2 ? byHttp() : byFetch());
  if (status === 200 && text.includes('"query_id"')) answered++;
}
console.log(answered);
process.exit();
