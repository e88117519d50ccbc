/** One connection: MessagePack-RPC on a socket. It ends once, and then every open request fails with `Lost`. */
import { connect, type Socket } from 'node:net';
import { decodeMultiStream, encode } from '@msgpack/msgpack';
import type { ErrorMap, Event } from './records.js';

/** Something went wrong between the client and the daemon; the message says what, and what to do. */
export class ClientError extends Error {
  override name = 'ClientError';
}

/** The connection ended before the answer arrived. */
export class Lost extends ClientError {}

/** The daemon's refusal. */
export class RpcError extends ClientError {
  override name = 'RpcError';
  readonly code: ErrorMap['code'];
  readonly data: Record<string, unknown>;

  constructor({ code, message, data = {} }: ErrorMap) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

type Message = [0, number, string, unknown[]] | [1, number, ErrorMap | null, unknown] | [2, string, [Record<string, unknown>]];
interface Pending {
  resolve(result: unknown): void;
  reject(error: Error): void;
}

export class Connection {
  /** Why it ended; undefined while it lasts. */
  ended: string | undefined;
  private readonly pending = new Map<number, Pending>();
  private last = 0;
  private why = 'the daemon closed it';

  private constructor(
    private readonly socket: Socket,
    private readonly heard: (event: Event) => void,
    private readonly lost: () => void,
  ) {
    socket.on('error', (error) => (this.why = error.message));
    void this.read();
  }

  /** Connect to `unix:/path` or `host:port`. heard: called with each event; lost: at the end. */
  static to(address: string, heard: (event: Event) => void, lost: () => void): Promise<Connection> {
    const [host = '', port = ''] = address.split(/:(?=\d+$)/);
    const target = address.startsWith('unix:') ? { path: address.slice('unix:'.length) } : { host: host.replace(/^\[|\]$/g, ''), port: Number(port) };
    return new Promise((resolve, reject) => {
      const socket = connect({ ...target, noDelay: true });
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new Connection(socket, heard, lost));
      });
    });
  }

  /** Ask; an abort of `signal` cancels the request in the daemon, too. */
  ask(method: string, params: object, signal?: AbortSignal): Promise<unknown> {
    if (this.ended !== undefined) return Promise.reject(new Lost(this.ended));
    const id = (this.last = (this.last + 1) % 2 ** 32);
    const cancel = (): void => {
      this.pending.get(id)?.reject(signal?.reason instanceof Error ? signal.reason : new ClientError('cancelled'));
      this.send([2, 'mase/cancel', [{ id }]]);
    };
    const answered = new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      if (signal?.aborted) return cancel();
      signal?.addEventListener('abort', cancel, { once: true });
      this.send([0, id, method, [params]]);
    });
    return answered.finally(() => {
      this.pending.delete(id);
      signal?.removeEventListener('abort', cancel);
    });
  }

  close(): void {
    this.why = 'the client closed it';
    this.socket.destroy();
  }

  private send(message: unknown[]): void {
    this.socket.write(encode(message, { ignoreUndefined: true }));
  }

  private async read(): Promise<void> {
    try {
      for await (const message of decodeMultiStream(this.socket)) this.take(message as Message);
    } catch (error) {
      if (this.why === 'the daemon closed it') this.why = String(error);
    }
    this.socket.destroy();
    this.ended = this.why;
    for (const { reject } of this.pending.values()) reject(new Lost(this.why));
    this.lost();
  }

  private take(message: Message): void {
    if (message[0] === 1) {
      const [, id, error, result] = message;
      const asked = this.pending.get(id);
      if (error === null) asked?.resolve(result);
      else asked?.reject(new RpcError(error));
    } else if (message[0] === 2) {
      const [, method, [told]] = message;
      if (method === 'mase/event') this.heard(told as unknown as Event);
      if (method === 'mase/dropped') this.why = `the daemon ended it: ${String(told.message)}`;
    }
  }
}
