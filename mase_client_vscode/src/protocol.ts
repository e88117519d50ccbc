/** What the server says beyond the Language Server Protocol. */
import { NotificationType } from 'vscode-languageclient/node';

export type TraceState =
  | 'queued'
  | 'starting'
  | 'tracing'
  | 'ready'
  | 'failed'
  | 'crashed'
  | 'superseded'
  | 'untrusted'
  | 'no_model'
  | 'no_environment';

/** Where the trace of one file stands. `stale`: the hints shown are of an older text, whose hash is `shown_sha256`. */
export interface MaseStatus {
  uri: string;
  state: TraceState;
  generation: number;
  sha256: string;
  shown_sha256: string | null;
  stale: boolean;
  live: boolean;
  seconds: number;
  message: string;
}

/** A model that shows shapes in a file, as `mase/roots` tells it. */
export interface Root {
  root: string;
  path: string;
  inputs_from: string;
  found: string;
  picked: boolean;
}

export const statusNotification = new NotificationType<MaseStatus>('mase/status');

/** What the server is told when it starts. `interpreter`: one path, or one for each workspace folder's URI. */
export interface InitializationOptions {
  trusted: boolean;
  interpreter: Record<string, string> | string | null;
}
