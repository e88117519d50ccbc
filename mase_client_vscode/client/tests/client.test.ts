/** The client against a real daemon, while the server, its workers and the connection are killed, stopped and cut. */
import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, beforeEach, test } from 'node:test';
import { Client, ClientError, RpcError, type News } from '../src/index.js';

const ROOT = resolve('..');
const PYTHON = process.env.MASE_PYTHON ?? join(ROOT, '.venv', 'bin', 'python');
const NET = `import torch
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x)

if __name__ == "__main__":
    print(Net()(torch.randn(2, 4)).shape)
`;

const folder = mkdtempSync(join(tmpdir(), 'mase-client-'));
const project = join(folder, 'project');
const path = join(project, 'net.py');
const environment = {
  ...process.env, PYTHONPATH: ROOT, OMP_NUM_THREADS: '1', MASE_RUNTIME_DIR: join(folder, 'run'),
  XDG_CACHE_HOME: join(folder, 'cache'), XDG_STATE_HOME: join(folder, 'state'),
};
const command = [PYTHON, '-m', 'mase_server'];
let daemon: ChildProcess;
let address: string;

/** Start a daemon; settled once it listens. */
async function serve(): Promise<void> {
  daemon = spawn(PYTHON, [...command.slice(1), 'serve', project, '--python', PYTHON, '--trust'], { env: environment, stdio: ['ignore', 'pipe', 'inherit'] });
  [address] = await once(createInterface(daemon.stdout!), 'line') as [string];
}

async function end(signal: NodeJS.Signals): Promise<void> {
  if (daemon.exitCode !== null || daemon.signalCode !== null) return;
  const ended = once(daemon, 'exit');
  daemon.kill(signal);
  await ended;
}

/** A client that finds the daemon by its folder, as it has to after the daemon was started anew. */
function finding(): Client {
  return new Client({ workspace: project, command });
}

type Told<Topic> = Extract<News, { topic: Topic }>;

/** The next event of a topic that fits. */
async function next<Topic extends News['topic']>(events: AsyncIterator<News>, topic: Topic, fits: (event: Told<Topic>) => boolean = () => true): Promise<Told<Topic>> {
  for (;;) {
    const { value } = (await events.next()) as IteratorResult<News, undefined>;
    assert.ok(value, 'the events ended');
    if (value.topic === topic && fits(value as Told<Topic>)) return value as Told<Topic>;
  }
}

/** A proxy whose connections can be cut. */
class Wire {
  cuts = 0;
  private readonly sockets = new Set<Socket>();
  private constructor(private readonly server: Server, readonly address: string) {}

  static async make(): Promise<Wire> {
    const where = join(folder, `wire-${Math.random()}.sock`);
    const made = new Wire(createServer((client) => made.join(client)), `unix:${where}`);
    made.server.listen(where);
    await once(made.server, 'listening');
    return made;
  }

  cut(): void {
    this.cuts += 1;
    for (const socket of this.sockets) socket.destroy();
  }

  close(): void {
    this.cut();
    this.server.close();
  }

  private join(client: Socket): void {
    const served = connect(address.slice('unix:'.length));
    for (const [one, other] of [[client, served], [served, client]] as const) {
      this.sockets.add(one);
      one.on('error', () => undefined);
      one.on('close', () => {
        this.sockets.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  }
}

before(async () => {
  mkdirSync(project);
  await serve();
});
beforeEach(() => writeFileSync(path, NET));
after(async () => {
  await end('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

// The variables of the environment are those of the test's own, because the client starts `mase-server rpc --where`.
Object.assign(process.env, environment);

test('methods are typed, and a refusal has a code', async () => {
  await using client = finding();
  const status = await client.open({ path });
  assert.equal(status.state, 'ready', status.message);
  const place = await client.nodeAt({ path, line: 10, column: 15 });
  assert.deepEqual(place?.values[0]?.value, ['f32', [2, 3], ['B', '3']]);
  assert.equal(place.values[0]?.node?.mase_op, 'linear');
  const [model] = await client.models({ path });
  assert.equal(model?.parameters, 15);
  const { arrays } = await client.weights({ path, names: ['fc.bias'] });
  assert.deepEqual([arrays[0]?.shape, arrays[0]?.data.length], [[3], 12], 'bytes stay bytes');
  await assert.rejects(client.graph({ path: '/nowhere.py' }), (error) => error instanceof RpcError && error.code === 'not-open' && error.data.path === '/nowhere.py');
  await assert.rejects(client.call('mase/session', { protocols: [7] }), (error) => error instanceof RpcError && error.code === 'unsupported-protocol');
});

test('many calls at once have their own answers', async () => {
  await using client = finding();
  await client.open({ path });
  const pages = await Promise.all(Array.from({ length: 50 }, (_, index) => client.graph({ path, start: index % 2, count: 1 })));
  assert.deepEqual(pages.map((page) => page.columns.row), Array.from({ length: 50 }, (_, index) => [index % 2]));
});

test('a killed server is waited for, and so is its trace', async () => {
  await using client = finding();
  await client.open({ path });
  await client.subscribe({ topics: ['graph'] });
  const events = client.events();
  const reconnected = next(events, 'reconnected');
  await end('SIGKILL');
  await assert.rejects(client.restartWorkers({}), (error) => error instanceof ClientError, 'what changes something is not repeated');
  await serve();
  await reconnected;
  const [model] = await client.models({ path });
  assert.equal(model?.parameters, 15, 'an answer from before the trace has no model');
  assert.equal((await next(events, 'graph')).path, path, 'it is subscribed again');
});

test('a killed worker costs one call at most', async () => {
  await using client = finding();
  await client.open({ path });
  await client.subscribe({ topics: ['worker'] });
  const events = client.events();
  const worker = (await client.workers()).find((each) => each.path === path);
  assert.ok(worker);
  process.kill(worker.pid, 'SIGKILL');
  assert.equal((await client.models({ path }))[0]?.parameters, 15, 'what was traced stays');
  assert.equal((await client.retrace({ path })).state, 'ready');
  await next(events, 'worker', (event) => event.state === 'ready');
  const { steps } = await client.applyPass({ path, pass: 'quantize', arguments: { default: 'fixed(8,4)' } });
  assert.deepEqual(steps, ["quantize(default='fixed(8,4)')"]);
  await client.resetPasses({ path });
});

test('a worker that dies in the middle of a trace ends the wait', async () => {
  await using client = finding();
  await client.subscribe({ topics: ['worker'], path });
  const events = client.events();
  writeFileSync(path, `import time\n${NET.replace('if __name__', 'time.sleep(60)\nif __name__')}`);
  const opened = client.open({ path });
  await next(events, 'worker', (event) => event.state === 'tracing');
  let worker: { pid: number } | undefined;
  while (worker === undefined) worker = (await client.workers()).find((each) => each.path === path);
  process.kill(worker.pid, 'SIGKILL');
  assert.notEqual((await opened).state, 'ready');
  writeFileSync(path, NET);
  assert.equal((await client.retrace({ path })).state, 'ready');
});

test('a cut connection is made again, with the open files and the subscriptions', async () => {
  const wire = await Wire.make();
  await using client = new Client({ address: wire.address });
  await client.open({ path });
  await client.subscribe({ topics: ['graph'] });
  const events = client.events();
  for (let cut = 0; cut < 5; cut += 1) {
    const reconnected = next(events, 'reconnected');
    const asked = Promise.all(Array.from({ length: 20 }, () => client.tensors({ path })));
    wire.cut();
    for (const { sites } of await asked) assert.equal(sites.at(-1)?.line, 10, 'each call was answered in the end');
    await reconnected;
  }
  writeFileSync(path, NET.replace('Linear(4, 3)', 'Linear(4, 5)'));
  await client.retrace({ path });
  await next(events, 'graph');
  wire.close();
});

test('without reconnecting, a cut connection is told', async () => {
  const wire = await Wire.make();
  await using client = new Client({ address: wire.address, reconnect: false });
  await client.info();
  wire.close();
  await assert.rejects(client.info(), /the connection was lost|cannot connect/);
});

test('a stopped server makes a call late, not lost', async () => {
  await using client = finding();
  await client.open({ path });
  daemon.kill('SIGSTOP');
  await assert.rejects(client.call('mase/info', {}, { timeout: 100 }), /mase\/info had no answer within 100 ms/);
  const asked = client.info();
  daemon.kill('SIGCONT');
  assert.equal((await asked).name, 'mase-server');
});

test('an aborted wait cancels the request in the daemon', async () => {
  await using client = finding();
  await client.subscribe({ topics: ['worker'], path });
  const events = client.events();
  writeFileSync(path, NET.replace('if __name__', 'import time; time.sleep(60)\nif __name__'));
  const stop = new AbortController();
  const opened = client.call('mase/open', { path }, { signal: stop.signal });
  await next(events, 'worker', (event) => event.state === 'tracing');
  stop.abort();
  await assert.rejects(opened);
  assert.ok((await client.info()).pid > 0, 'the connection goes on');
  writeFileSync(path, NET);
});

test('a file that was deleted does not keep a client from coming back', async () => {
  await using client = finding();
  const gone = join(project, 'gone.py');
  writeFileSync(gone, NET);
  await client.open({ path });
  await client.open({ path: gone });
  unlinkSync(gone);
  await end('SIGKILL');
  await serve();
  assert.equal((await client.models({ path }))[0]?.parameters, 15);
});

test('where no daemon is, the message says what to do', async () => {
  const nowhere = mkdtempSync(join(tmpdir(), 'mase-nowhere-'));
  await using client = new Client({ workspace: nowhere, command, reconnect: false });
  await assert.rejects(client.info(), /no daemon serves .*: open it in an editor, or run `mase-server serve/);
  rmSync(nowhere, { recursive: true });
});

test('the packed package runs in Node, and has its types', () => {
  const npm = (...words: string[]) => spawnSync('npm', words, { encoding: 'utf8' });
  const packed = npm('pack', './client', '--pack-destination', folder, '--json');
  assert.equal(packed.status, 0, packed.stderr);
  const user = join(folder, 'user');
  const modules = join(user, 'node_modules');
  mkdirSync(join(modules, 'mase-client'), { recursive: true });
  for (const name of ['@msgpack', '@types']) symlinkSync(resolve('node_modules', name), join(modules, name));
  const unpacked = spawnSync('tar', ['xzf', join(folder, 'mase-client-0.1.0.tgz'), '--strip-components=1', '-C', join(modules, 'mase-client')]);
  assert.equal(unpacked.status, 0, String(unpacked.stderr));
  const text = `import { Client } from 'mase-client';
const client = new Client({ address: ${JSON.stringify(address)} });
const { state } = await client.open({ path: ${JSON.stringify(path)} });
const models = await client.models({ path: ${JSON.stringify(path)} });
console.log(state, models[0]?.parameters);
await client.disconnect();
`;
  writeFileSync(join(user, 'user.mts'), text.replace('{ state }', '{ state }: { state?: import("mase-client").TraceState }'));
  writeFileSync(join(user, 'user.mjs'), text);
  const typed = spawnSync(resolve('node_modules', '.bin', 'tsc'), ['--strict', '--noEmit', '--module', 'nodenext', '--target', 'es2023', '--lib', 'es2023,esnext.disposable', '--types', 'node', 'user.mts'], { cwd: user, encoding: 'utf8' });
  assert.equal(typed.status, 0, typed.stdout);
  const ran = spawnSync(process.execPath, ['user.mjs'], { cwd: user, encoding: 'utf8' });
  assert.equal(ran.stdout, 'ready 15\n', ran.stderr);
});
