/** Where an interpreter may come from. */
import { Disposable, Event, Uri } from 'vscode';

/** One source of interpreters. It answers undefined where it knows none; it never throws. */
export interface EnvironmentProvider extends Disposable {
  /** For the log: "chosen by ...". */
  readonly name: string;
  /** Fires when an answer may have changed. */
  readonly onDidChange: Event<unknown>;
  /** The absolute path of the Python that the models of `folder` run in; no folder: of files outside any. */
  interpreter(folder: Uri | undefined): Promise<string | undefined>;
}
