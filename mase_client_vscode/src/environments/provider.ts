/** Sources of interpreters. */
import { Disposable, Event, Uri } from 'vscode';

/** One source of interpreters. It answers undefined if it knows none, and never throws. */
export interface EnvironmentProvider extends Disposable {
  /** For the log: "chosen by ...". */
  readonly name: string;
  /** Fires when an answer may have changed. */
  readonly onDidChange: Event<unknown>;
  /** The absolute path of the Python that runs the models of `folder`; no folder: of files outside any. */
  interpreter(folder: Uri | undefined): Promise<string | undefined>;
}
