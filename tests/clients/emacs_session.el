;;; What a person does in Emacs with a file that has a mistake; what they see goes to a file, as JSON.  -*- lexical-binding: t; -*-
;; The configuration is the documented one: this only opens, looks, takes the fix and saves.
(require 'cl-lib)
(require 'json)

(defvar mase-test-told nil "What was seen, an alist.")

(defun mase-test-tell (key value) (push (cons key value) mase-test-told))

(defmacro mase-test-until (name condition)
  "Wait for CONDITION, its value."
  `(let ((end (+ (float-time) 60)) found)
     (while (not (or (setq found ,condition) (> (float-time) end))) (if noninteractive (accept-process-output nil 0.02) (sit-for 0.02)))
     (or found (error "never: %s" ,name))))

(defun mase-test-hints ()
  "Line, column and text of every hint in the buffer."
  (let (found)
    (dolist (overlay (overlays-in (point-min) (point-max)))
      (when (overlay-get overlay 'eglot--inlay-hint)
        (push (list (line-number-at-pos (overlay-start overlay))
                    (- (overlay-start overlay) (save-excursion (goto-char (overlay-start overlay)) (line-beginning-position)))
                    (concat (overlay-get overlay 'before-string) (overlay-get overlay 'after-string)))
              found)))
    (sort found (lambda (one other) (< (car one) (car other))))))

(defun mase-test-session ()
  (mase-test-until "a server" (eglot-current-server))
  (mase-test-until "a diagnostic" (flymake-diagnostics))
  (mase-test-tell 'diagnostics
                  (vconcat (mapcar (lambda (each)
                                     (vector (line-number-at-pos (flymake-diagnostic-beg each))
                                             (substring-no-properties (flymake-diagnostic-text each))))
                                   (flymake-diagnostics))))
  (goto-char (point-min))
  (search-forward "hidden")
  (backward-char)
  (let (hover)
    (eglot-hover-eldoc-function (lambda (text &rest _) (setq hover (and text (substring-no-properties text)))))
    (mase-test-tell 'hover (mase-test-until "a hover" hover)))
  (search-forward "self.head(")
  (eglot-code-actions (point) nil "quickfix" t)
  (mase-test-until "the fix" (buffer-modified-p))
  (goto-char (point-min))
  (forward-line 8)
  (mase-test-tell 'fixed (buffer-substring-no-properties (point) (line-end-position)))
  (save-buffer)
  (mase-test-until "no diagnostic" (null (flymake-diagnostics)))
  (when (fboundp 'eglot-inlay-hints-mode)
    (mase-test-until "hints" (cl-find-if (lambda (hint) (string-match-p "f32\\[B, 5\\]" (nth 2 hint))) (mase-test-hints)))
    (mase-test-tell 'hints (vconcat (mapcar (lambda (hint) (vector (car hint) (cadr hint) (substring-no-properties (nth 2 hint))))
                                            (mase-test-hints))))))

(defun mase-test-run (out)
  (mase-test-tell 'version emacs-version)
  (condition-case problem
      (mase-test-session)
    (error (mase-test-tell 'problem (error-message-string problem))))
  (let ((coding-system-for-write (quote utf-8))) (with-temp-file out
    (insert (json-encode mase-test-told))))
  (kill-emacs))

;; No command runs here: what Eglot starts after a command is started by hand.
(let ((given (json-parse-string (getenv "MASE_TEST") :array-type 'list)))
  (find-file (car given))
  (run-hooks 'post-command-hook)
  (mase-test-run (cadr given)))
