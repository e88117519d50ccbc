/** The client: finds the daemon, and comes back to it with the same open files and subscriptions. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { ClientError, Connection, Lost, RpcError } from './connection.js';
import { ABOUT_ALL, Methods, PROTOCOL, REPEATABLE, RETRY } from './methods.js';
import type { Event } from './records.js';

export { ClientError, RpcError };

/** An event, or the news that events were lost while there was no connection. */
export type News = Event | { topic: 'reconnected' };

/** address: of the daemon; without it, the daemon of the file or folder `workspace`, which `command` finds. tokenFile: for TCP. timeout: milliseconds for a call. reconnect: after a lost connection? */
export interface ClientOptions {
  address?: string;
  workspace?: string;
  command?: string[];
  tokenFile?: string;
  timeout?: number;
  reconnect?: boolean;
}

/** timeout: milliseconds. signal: ends the wait. */
export interface CallOptions {
  timeout?: number;
  signal?: AbortSignal;
}

const run = promisify(execFile);
/** Unread events; then the oldest are dropped. */
const NEWS = 4096;

export class Client extends Methods implements AsyncDisposable {
  private connection: Connection | undefined;
  private connecting: Promise<Connection> | undefined;
  private closed = false;
  private readonly opened = new Map<string, object>();
  private readonly subscribed = new Map<number, object>();
  /** Files that a new connection opened without waiting for their traces: the next call about a file waits. */
  private readonly untraced = new Set<string>();
  private readonly news: News[] = [];
  private wake: () => void = () => undefined;

  constructor(private readonly options: ClientOptions = {}) {
    super();
  }

  /** Call any method by its name; undefined parameters are not sent. */
  async call<T>(method: string, params: object = {}, { timeout = this.options.timeout, signal }: CallOptions = {}): Promise<T> {
    const late = timeout === undefined ? undefined : AbortSignal.timeout(timeout);
    const ends = [late, signal].filter((each) => each !== undefined);
    const end = ends.length > 0 ? AbortSignal.any(ends) : undefined;
    const connected = this.connection !== undefined;
    const ask = async (): Promise<unknown> => {
      const connection = await until(this.connect(), end);
      await this.settle(connection, method, params, end);
      return connection.ask(method, params, end);
    };
    try {
      const result = await ask().catch((error: unknown) => {
        if (error instanceof Lost && this.comesBack && connected && REPEATABLE.has(method)) return ask();
        throw error;
      });
      this.note(method, params, result);
      return result as T;
    } catch (error) {
      if (late?.aborted && !(error instanceof ClientError)) throw new ClientError(`${method} had no answer within ${timeout} ms`);
      if (error instanceof Lost) throw new ClientError(`${method}: the connection was lost: ${error.message}`);
      throw error;
    }
  }

  /** What the subscriptions tell, until the client is closed. It tries to reach a lost daemon again for as long. */
  async *events(): AsyncGenerator<News, void> {
    await this.connect();
    while (!this.closed) {
      for (let event = this.news.shift(); event !== undefined; event = this.news.shift()) yield event;
      if (this.connection !== undefined || this.closed) await new Promise<void>((resolve) => (this.wake = resolve));
      else if (!this.comesBack) throw new ClientError('events: the connection was lost');
      else if (await this.connect().then(() => true, () => false)) this.news.unshift({ topic: 'reconnected' });
    }
  }

  /** End the connection for good. */
  async disconnect(): Promise<void> {
    this.closed = true;
    this.connection?.close();
    await this.connecting?.catch(() => undefined);
    this.wake();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.disconnect();
  }

  protected override async answer<T>(method: string, params: object, key?: string): Promise<T> {
    const result = await this.call<Record<string, unknown>>(method, params);
    return (key === undefined ? result : result[key]) as T;
  }

  private get comesBack(): boolean {
    return this.options.reconnect !== false && !this.closed;
  }

  private connect(): Promise<Connection> {
    if (this.connection !== undefined) return Promise.resolve(this.connection);
    this.connecting ??= this.reach().finally(() => (this.connecting = undefined));
    return this.connecting;
  }

  private async reach(): Promise<Connection> {
    let last: unknown;
    for (const milliseconds of this.comesBack ? RETRY : RETRY.slice(0, 1)) {
      await pause(milliseconds);
      if (this.closed) break;
      try {
        return await this.greet();
      } catch (error) {
        if (error instanceof RpcError) throw error; // another attempt has the same answer
        last = error;
      }
    }
    if (this.closed) throw new ClientError('the client was closed');
    throw last instanceof ClientError && !(last instanceof Lost) ? last : new ClientError(`cannot connect to the daemon: ${String(last)}`);
  }

  /** Connect, agree on a version of the API, and ask for everything again that the last connection had. */
  private async greet(): Promise<Connection> {
    const address = this.options.address ?? (await this.find());
    const made = await Connection.to(
      address.startsWith('/') ? `unix:${address}` : address,
      (event) => this.hear(event),
      () => {
        if (this.connection === made) this.connection = undefined;
        this.wake();
      },
    );
    try {
      if (this.options.tokenFile !== undefined) await made.ask('mase/authenticate', { token: (await readFile(this.options.tokenFile, 'utf8')).trim() });
      await made.ask('mase/session', { protocols: [PROTOCOL] });
      for (const [path, params] of this.opened) {
        this.untraced.add(path);
        await made.ask('mase/open', { ...params, wait: false }).catch(unlessRefused);
      }
      for (const params of this.subscribed.values()) await made.ask('mase/subscribe', params).catch(unlessRefused);
    } catch (error) {
      made.close();
      throw error;
    }
    return (this.connection = made);
  }

  private async find(): Promise<string> {
    const { workspace = '.', command = ['mase-server'] } = this.options;
    const [program = '', ...given] = command;
    try {
      return (await run(program, [...given, 'rpc', '--where', '--workspace', workspace])).stdout.trim();
    } catch (error) {
      const { stderr, message } = error as { stderr?: string; message: string };
      throw new ClientError((stderr || message).trim());
    }
  }

  /** Wait until a new daemon has traced what was open, if the call is about files. */
  private async settle(connection: Connection, method: string, params: object, end: AbortSignal | undefined): Promise<void> {
    if (!('path' in params) && !ABOUT_ALL.has(method)) return;
    for (const path of this.untraced) {
      await connection.ask('mase/open', { ...this.opened.get(path), wait: true }, end).catch(unlessRefused);
      this.untraced.delete(path);
    }
  }

  private note(method: string, params: object, result: unknown): void {
    const { path = '', subscription = 0 } = { ...params, ...(method === 'mase/subscribe' ? (result as object) : {}) } as { path?: string; subscription?: number };
    if (method === 'mase/open') this.opened.set(path, params);
    if (method === 'mase/close') this.opened.delete(path);
    if (method === 'mase/subscribe') this.subscribed.set(subscription, params);
    if (method === 'mase/unsubscribe') this.subscribed.delete(subscription);
  }

  private hear(event: Event): void {
    this.news.push(event);
    if (this.news.length > NEWS) this.news.shift();
    this.wake();
  }
}

/** A file may be gone meanwhile: calls about it say so. */
function unlessRefused(error: unknown): void {
  if (!(error instanceof RpcError)) throw error;
}

/** A promise, or the end of the wait for it. */
function until<T>(promise: Promise<T>, end: AbortSignal | undefined): Promise<T> {
  if (end === undefined) return promise;
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(end.reason as Error);
    if (end.aborted) stop();
    end.addEventListener('abort', stop, { once: true });
    void promise.then(resolve, reject).finally(() => end.removeEventListener('abort', stop));
  });
}
