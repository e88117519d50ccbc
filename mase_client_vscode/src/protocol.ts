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

/** Why a trace takes long, in one line: while it does, and once more just before it ends. */
export const slowNotification = new NotificationType<{ uri: string; text: string }>('mase/slow');

export const statusNotification = new NotificationType<MaseStatus>('mase/status');

/** What the server is told when it starts. `interpreter`: one path, or one for each workspace folder's URI. `commandLinks`: what links may run. */
export interface InitializationOptions {
  trusted: boolean;
  commandLinks: string[];
  interpreter: Record<string, string> | string | null;
}

export type ArgumentKind = 'integer' | 'number' | 'boolean' | 'text' | 'choice' | 'format' | 'texts' | 'map' | 'value' | 'file';

/** One argument of a pass, as the server declares it. */
export interface PassArgument {
  name: string;
  kind: ArgumentKind;
  help: string;
  default: unknown;
  required: boolean;
  choices: string[];
  minimum: number | null;
  maximum: number | null;
}

/** A pass, as `mase/passes` tells it. `others`: what further arguments mean, where it takes any. `source`: the person's file. */
export interface Pass {
  name: string;
  title: string;
  kind: 'analysis' | 'transform';
  help: string;
  arguments: PassArgument[];
  others: PassArgument | null;
  needs: string[];
  selects: boolean;
  menu: boolean;
  source: string;
}

/** How hardware is made of a model; see `mase/buildForm`. */
export type Build = Record<string, unknown>;

/** The form of a build: as a pass, with what was given before. */
export interface BuildForm extends Pass {
  given: Build;
}

/** What `mase/verilog` tells; `build` is null where nobody asked yet. */
export interface Hardware {
  model: string;
  build: Build | null;
}

/** What `mase.emitVerilog` and `mase.saveVerilog` tell. */
export interface Emission {
  uri: string;
  module: string;
  weights: string;
  files: [string, number][];
  folder: string | null;
  refusal: string | null;
}

/** What `mase.simulateVerilog` tells. `summary`: the same in words.  `log`: the tool's own words, where it failed. */
export interface Simulation {
  status: 'equal' | 'different' | 'stood still' | 'failed';
  summary: string;
  folder: string;
  log: string;
}

/** The scheme of the documents of hardware. */
export const HARDWARE = 'mase-verilog';

/** What to highlight in one document, as `mase/counterparts` tells it. */
export interface Counterpart {
  uri: string;
  names: string[];
  ranges: { start: { line: number; character: number }; end: { line: number; character: number } }[];
}

/** Which model is meant; `only`: parts of it, `name`: what the person calls them. */
export interface PassTarget {
  path: string;
  model: string;
  only?: string[];
  name?: string;
}

/** A model that may be meant in a file, as `mase/choices` tells it. */
export interface Choice {
  path: string;
  model: string;
  found: string;
  picked: boolean;
}

/** What `mase/pipeline` tells. */
export interface Pipeline {
  model: string;
  steps: string[];
  undone: string[];
}

/** What `mase.applyPass` answers. `info`: what the pass did or found, in words. */
export interface Applied extends Pipeline {
  info: string;
}

/** The texts of the passes that lie over the models of a file, by the models' titles. */
export interface MasePipelines {
  uri: string;
  pipelines: Record<string, string[]>;
}

export const pipelinesNotification = new NotificationType<MasePipelines>('mase/pipelines');

/** Something else is known of these files: hints, graphs, costs, what passes made. */
export const viewsNotification = new NotificationType<{ uris: string[] }>('mase/viewsChanged');
