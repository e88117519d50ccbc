/** A typed client of the MASE daemon, over MessagePack-RPC. */
export { Client, ClientError, RpcError, type CallOptions, type ClientOptions, type News } from './client.js';
export { Methods, PROTOCOL, VERSION } from './methods.js';
export type * from './records.js';
