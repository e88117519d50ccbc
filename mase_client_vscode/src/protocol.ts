/** The server's notifications and what the extension sends; the records are those of the client package. */
import { NotificationType } from 'vscode-languageclient/node';
import { MasePipelines, MaseStatus, SlowTrace, ViewsChanged } from 'mase-client/records';

export const slowNotification = new NotificationType<SlowTrace>('mase/slow');
export const statusNotification = new NotificationType<MaseStatus>('mase/status');
export const pipelinesNotification = new NotificationType<MasePipelines>('mase/pipelines');
export const viewsNotification = new NotificationType<ViewsChanged>('mase/viewsChanged');

/** The initialization options. `interpreter`: one path, or one for each workspace folder's URI. `commandLinks`: what links may run. */
export interface InitializationOptions {
  trusted: boolean;
  commandLinks: string[];
  interpreter: Record<string, string> | string | null;
}

/** The parameters of an emission; see `mase/buildForm`. */
export type Build = Record<string, unknown>;

/** The scheme of the documents of hardware. */
export const HARDWARE = 'mase-verilog';
/** The scheme of the documents of what compilers make of models. */
export const COMPILED = 'mase-compiled';

/** The model of a command; `only`: parts of it, `name`: their name in menus. */
export interface PassTarget {
  path: string;
  model: string;
  only?: string[];
  name?: string;
}
