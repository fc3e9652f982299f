// Ask Leveret from Node.js: amqplib, the answer streams as it is generated, with publisher confirms.
//
//     npm install amqplib
//     node streaming.cjs "What is the capital of France?"
//
// Reads LEVERET_AMQP_URL and LEVERET_QUEUE. Exit status 0 answered, 1 error reply, 3 no answer.

const { randomUUID } = require("node:crypto");
const amqp = require("amqplib");

const BUDGET_SECONDS = 60;
// The daemon ends a request when its budget is spent; its answer still has to travel.
const MARGIN_SECONDS = 5;

class NoAnswer extends Error {}

// Sends one request and resolves with its terminal message's body: a completion, or an object with `error`.
// `onText(text, restarted)` gets the text as it comes. `restarted` means: forget all earlier text, a new attempt began.
async function ask(url, queue, request, onText) {
  const connection = await amqp.connect(url);
  try {
    return await askOn(connection, queue, request, onText);
  } finally {
    // After a lost connection there is nothing left to close.
    await connection.close().catch(() => {});
  }
}

async function askOn(connection, queue, request, onText) {
  // A full or missing queue is told only to a publisher that asks for confirms.
  const channel = await connection.createConfirmChannel();
  const correlationId = randomUUID();
  const answered = new Promise((resolve, reject) => {
    const seconds = BUDGET_SECONDS + MARGIN_SECONDS;
    const timer = setTimeout(() => reject(new NoAnswer(`no answer within ${seconds} s`)), seconds * 1000);
    timer.unref();
    for (const emitter of [connection, channel]) {
      emitter.on("error", (error) => reject(new NoAnswer(error.message)));
      emitter.on("close", () => reject(new NoAnswer("the connection was lost")));
    }
    channel.on("return", () => reject(new NoAnswer(`there is no queue "${queue}"; has a daemon been started?`)));
    const reader = new Reader(correlationId, onText, resolve);
    channel
      .assertQueue("", { exclusive: true })
      .then(async ({ queue: replyTo }) => {
        // null: the broker has cancelled the consumer, because somebody deleted the queue.
        const onMessage = (message) =>
          message ? reader.read(message) : reject(new NoAnswer("the reply queue was deleted"));
        await channel.consume(replyTo, onMessage, { noAck: true });
        await publish(channel, queue, request, { correlationId, replyTo });
      })
      .catch(reject);
  });
  return await answered;
}

// Resolves once the broker has the request.
function publish(channel, queue, request, properties) {
  const body = Buffer.from(JSON.stringify({ ...request, stream: true, timeout: BUDGET_SECONDS }));
  const options = {
    ...properties,
    contentType: "application/json",
    messageId: randomUUID(),
    timestamp: Math.floor(Date.now() / 1000),
    persistent: true,
    mandatory: true,
  };
  return new Promise((resolve, reject) => {
    const refused = new NoAnswer(`the queue "${queue}" is full; try again later`);
    channel.publish("", queue, body, options, (error) => (error ? reject(refused) : resolve()));
  });
}

// Puts chunks in order: a copy has a `seq` that was seen, an older attempt is over, a later one starts the text anew.
class Reader {
  constructor(correlationId, onText, onEnd) {
    Object.assign(this, { correlationId, onText, onEnd, attempt: 0, next: 0, given: "", restarted: false, ended: false });
  }

  read({ properties, content }) {
    // The first terminal message counts; whatever comes later is a copy.
    if (this.ended || properties.correlationId !== this.correlationId) return;
    const body = JSON.parse(content.toString());
    if (properties.headers.final) {
      this.end(body);
    } else if (this.isNext(properties.headers)) {
      this.next += 1;
      this.give(body.choices[0].delta.content);
    }
  }

  isNext({ attempt, seq }) {
    if (attempt > this.attempt) {
      this.attempt = attempt;
      this.next = 0;
      this.forget();
    }
    return attempt === this.attempt && seq === this.next;
  }

  end(body) {
    this.ended = true;
    if (!body.error) {
      // The terminal message has the whole text: give what no chunk has brought.
      const text = body.choices[0].message.content;
      if (!text.startsWith(this.given)) this.forget();
      if (text.length > this.given.length) this.give(text.slice(this.given.length));
    }
    this.onEnd(body);
  }

  forget() {
    this.restarted = this.restarted || this.given !== "";
    this.given = "";
  }

  give(text) {
    this.given += text;
    this.onText(text, this.restarted);
    this.restarted = false;
  }
}

async function main() {
  const url = process.env.LEVERET_AMQP_URL || "amqp://guest:guest@localhost:5672/";
  const queue = process.env.LEVERET_QUEUE || "chat.requests";
  const request = { messages: [{ role: "user", content: process.argv[2] }], max_new_tokens: 64, temperature: 0 };
  const show = (text, restarted) => process.stdout.write(restarted ? `\n${text}` : text);
  const answer = await ask(url, queue, request, show);
  process.stdout.write("\n");
  if (answer.error) {
    process.stderr.write(`${answer.error.code}: ${answer.error.message}\n`);
    process.exitCode = 1;
  }
}

if (require.main === module) {
  main().catch((error) => {
    process.stderr.write(`no answer: ${error.message}\n`);
    process.exitCode = 3;
  });
}

module.exports = { ask };
