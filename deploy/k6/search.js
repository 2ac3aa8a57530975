// Load of POST /search by k6: `k6 run -e URL=http://127.0.0.1:8000 -e QUERIES=queries.jsonl deploy/k6/search.js`
// RATE queries a second arrive for DURATION, however slow the replies are. It fails if 1 % of the requests fail, or if
// the 99th percentile is over P99 ms. Queries are drawn from the lines of QUERIES (the field `text`), so caches help little.
import http from 'k6/http';
import { check } from 'k6';
import { SharedArray } from 'k6/data';
import { Counter } from 'k6/metrics';

const texts = new SharedArray('queries', () =>
  open(__ENV.QUERIES).split('\n').filter(Boolean).map((line) => JSON.parse(line).text));
const empty = new Counter('taugate_empty_replies');
const headers = { 'Content-Type': 'application/json' };
if (__ENV.KEY) headers.Authorization = `Bearer ${__ENV.KEY}`;

export const options = {
  scenarios: {
    search: {
      executor: 'constant-arrival-rate',
      rate: Number(__ENV.RATE || 50),
      timeUnit: '1s',
      duration: __ENV.DURATION || '1m',
      preAllocatedVUs: 64,
    },
  },
  thresholds: {
    checks: ['rate>0.99'],
    http_req_duration: [`p(99)<${__ENV.P99 || 200}`],
  },
};

export default function () {
  const query = texts[Math.floor(Math.random() * texts.length)];
  const reply = http.post(`${__ENV.URL}/search`, JSON.stringify({ query }), { headers });
  const replied = check(reply, { 'status is 200': (received) => received.status === 200 });
  if (replied && reply.json('results').length === 0) empty.add(1);
}
